#include "eval/full_cache.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

TEST(FullCacheTest, NothingIsCutAndTheRestStays) {
  CacheOptions cache;
  cache.policy = PolicyName::kLru;
  cache.budget = {.kind = Budget::Kind::kTokens, .amount = 512};
  cache.kv_type = KvTypeName::kInt8;
  const CacheOptions full = FullCacheOf(cache);
  EXPECT_EQ(full.policy, PolicyName::kFull);
  EXPECT_EQ(full.budget, Budget());
  EXPECT_EQ(full.kv_type, KvTypeName::kInt8);
}

TEST(FullCacheTest, TheOtherRoundingIsOf16BitsAndAnother) {
  const auto other = [](KvTypeName type) {
    CacheOptions cache;
    cache.kv_type = type;
    return FullCacheRoundedOtherwise(cache).kv_type;
  };
  EXPECT_EQ(other(KvTypeName::kF16), KvTypeName::kBF16);
  EXPECT_EQ(other(KvTypeName::kBF16), KvTypeName::kF16);
  EXPECT_EQ(other(KvTypeName::kInt8), KvTypeName::kF16);
}

}  // namespace
}  // namespace lkv
