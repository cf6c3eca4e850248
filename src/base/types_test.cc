#include "base/types.h"

#include <gtest/gtest.h>

#include <set>

namespace lkv {
namespace {

// SmolLM2-135M: 30 layers, 9 query heads on 3 KV heads of 64.
constexpr KvShape kSmolLm2{
    .n_layers = 30, .n_kv_heads = 3, .group = 3, .head_dim = 64};

TEST(KvShapeTest, CountsTheBytesOfARealModel) {
  EXPECT_EQ(kSmolLm2.n_heads(), 9u);
  EXPECT_EQ(kSmolLm2.n_lanes(), 90u);
  EXPECT_EQ(kSmolLm2.page_bytes(KvType::kF16), 4096u);
  EXPECT_EQ(kSmolLm2.page_bytes(KvType::kBF16), 4096u);
  EXPECT_EQ(kSmolLm2.page_bytes(KvType::kInt8), 2112u);  // 64 for scales
  EXPECT_EQ(kSmolLm2.bytes_per_token(KvType::kF16), 23040u);
  EXPECT_EQ(kSmolLm2.bytes_per_token(KvType::kInt8), 11880u);
  EXPECT_EQ(kSmolLm2.page_bytes(KvType::kF16) * kSmolLm2.n_lanes(),
            kSmolLm2.bytes_per_token(KvType::kF16) * kPageTokens);
}

TEST(KvShapeTest, NumbersEveryLaneOnceLayerMajor) {
  std::set<uint32_t> lanes;
  for (uint32_t layer = 0; layer < kSmolLm2.n_layers; ++layer) {
    for (uint32_t head = 0; head < kSmolLm2.n_kv_heads; ++head) {
      lanes.insert(kSmolLm2.LaneOf(layer, head));
    }
  }
  EXPECT_EQ(lanes.size(), kSmolLm2.n_lanes());
  EXPECT_EQ(*lanes.rbegin(), kSmolLm2.n_lanes() - 1);
  EXPECT_EQ(kSmolLm2.LaneOf(1, 0), kSmolLm2.n_kv_heads);
}

// 70B models pass 4 GiB of KV at long contexts: sizes must not wrap at 32 bit.
TEST(KvShapeTest, CountsBeyond32Bit) {
  constexpr KvShape wide{
      .n_layers = 1000, .n_kv_heads = 1000, .group = 1, .head_dim = 2048};
  EXPECT_EQ(wide.bytes_per_token(KvType::kF16), size_t{8'192'000'000});
}

}  // namespace
}  // namespace lkv
