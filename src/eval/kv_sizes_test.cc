#include "eval/kv_sizes.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

TEST(KvSizesTest, AreThoseOfTheFormats) {
  constexpr KvShape kShape{
      .n_layers = 32, .n_kv_heads = 8, .group = 4, .head_dim = 128};
  constexpr uint32_t kTokens = 32768;
  const auto rows = KvSizes(kShape, kTokens);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  ASSERT_EQ(rows->size(), 4u);
  // 2 * 128 elements of 2 bytes in 256 lanes.
  constexpr uint64_t kF16 = uint64_t{kTokens} * 256 * 512;
  const auto share = [&](uint64_t n_bytes) {
    return static_cast<double>(n_bytes) / kF16;
  };
  EXPECT_NEAR(share((*rows)[0].total_bytes()), 1, 0.01);
  EXPECT_NEAR(share((*rows)[1].total_bytes()), 0.51, 0.02);
  EXPECT_LE(share((*rows)[2].total_bytes()), 0.25);
  EXPECT_GT(share((*rows)[2].total_bytes()), 0.24);
  EXPECT_LE(share((*rows)[3].total_bytes()), 0.4);
  EXPECT_GT(share((*rows)[3].total_bytes()), 0.39);
  EXPECT_NEAR(share((*rows)[3].copy_bytes), 0.28, 0.01);
}

TEST(KvSizesTest, NothingIsSavedOfATextTooShortToChooseFrom) {
  constexpr KvShape kShape{
      .n_layers = 2, .n_kv_heads = 1, .group = 1, .head_dim = 64};
  const auto rows = KvSizes(kShape, 10);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  for (const KvSizeRow& row : *rows) {
    EXPECT_GE(row.total_bytes(), 10 * kShape.bytes_per_token(KvType::kInt8));
    EXPECT_EQ(row.copy_bytes, 0u);
  }
  EXPECT_GE((*rows)[2].total_bytes(), (*rows)[0].total_bytes());
}

}  // namespace
}  // namespace lkv
