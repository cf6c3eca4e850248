#include "model/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "cache/expected_attention.h"
#include "ggml-cpu.h"
#include "ggml.h"

namespace lkv {
namespace {

// One head, rotated by ggml itself.
std::vector<float> RotateWithGgml(const RopeOptions& options, uint32_t position,
                                  std::vector<float> head) {
  std::unique_ptr<ggml_context, decltype(&ggml_free)> context(
      ggml_init(
          {.mem_size = 16 << 20, .mem_buffer = nullptr, .no_alloc = false}),
      &ggml_free);
  ggml_context* c = context.get();
  ggml_tensor* x =
      ggml_new_tensor_3d(c, GGML_TYPE_F32, options.n_rotated, 1, 1);
  std::copy(head.begin(), head.end(), ggml_get_data_f32(x));
  ggml_tensor* positions = ggml_new_tensor_1d(c, GGML_TYPE_I32, 1);
  *static_cast<int32_t*>(positions->data) = static_cast<int32_t>(position);
  ggml_tensor* factors = nullptr;
  if (!options.frequency_factors.empty()) {
    factors = ggml_new_tensor_1d(c, GGML_TYPE_F32, options.n_rotated / 2);
    std::copy(options.frequency_factors.begin(),
              options.frequency_factors.end(), ggml_get_data_f32(factors));
  }
  const bool yarn = options.scaling == RopeScaling::kYarn;
  const float scale =
      options.scaling == RopeScaling::kNone ? 1.0f : 1.0f / options.factor;
  ggml_tensor* y = ggml_rope_ext(
      c, x, positions, factors, static_cast<int>(options.n_rotated),
      options.order == RopeOrder::kNeox ? GGML_ROPE_TYPE_NEOX
                                        : GGML_ROPE_TYPE_NORMAL,
      static_cast<int>(options.original_context), options.frequency_base, scale,
      yarn ? 1.0f : 0.0f, options.attention_factor, options.yarn_beta_fast,
      options.yarn_beta_slow);
  ggml_cgraph* graph = ggml_new_graph(c);
  ggml_build_forward_expand(graph, y);
  EXPECT_EQ(ggml_graph_compute_with_ctx(c, graph, 1), GGML_STATUS_SUCCESS);
  std::copy_n(ggml_get_data_f32(y), head.size(), head.begin());
  return head;
}

std::vector<float> RotateWithOurs(const RopeOptions& options, uint32_t position,
                                  std::vector<float> head) {
  RopeTable rope(options);
  std::vector<float> cosine(rope.n_pairs());
  std::vector<float> sine(rope.n_pairs());
  rope.Angles(position, cosine.data(), sine.data());
  RotateHead(options.order, cosine.data(), sine.data(), rope.n_pairs(),
             head.data());
  return head;
}

// ggml multiplies angles up in float: an angle of `position` radians is off by
// some 1e-7 * position, an element by that times its size (below 4).
void ExpectAsGgml(const RopeOptions& options) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> head(options.n_rotated);
  for (float& x : head) x = normal(random);
  for (uint32_t position : {0u, 1u, 17u, 300u, 4095u}) {
    const std::vector<float> expected = RotateWithGgml(options, position, head);
    const std::vector<float> actual = RotateWithOurs(options, position, head);
    for (size_t i = 0; i < head.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 2e-6 + 2e-6 * position)
          << "position " << position << ", element " << i;
    }
  }
}

RopeOptions Plain(RopeOrder order, uint32_t n_rotated) {
  RopeOptions options;
  options.order = order;
  options.n_rotated = n_rotated;
  return options;
}

TEST(RopeTest, PlainRotationIsThatOfGgml) {
  for (uint32_t head_dim : {64u, 80u, 96u, 128u, 256u}) {
    ExpectAsGgml(Plain(RopeOrder::kNormal, head_dim));
    ExpectAsGgml(Plain(RopeOrder::kNeox, head_dim));
  }
}

TEST(RopeTest, LinearScalingIsThatOfGgml) {
  RopeOptions options = Plain(RopeOrder::kNormal, 64);
  options.scaling = RopeScaling::kLinear;
  options.factor = 4;
  options.frequency_base = 500000;
  ExpectAsGgml(options);
}

TEST(RopeTest, FactorsPerPairAreThoseOfGgml) {
  RopeOptions options = Plain(RopeOrder::kNormal, 64);
  for (uint32_t i = 0; i < 32; ++i) {
    options.frequency_factors.push_back(1.0f + 0.25f * i);
  }
  ExpectAsGgml(options);
}

// What libllama hands to ggml as the attention factor cancels ggml's own
// magnitude and puts 1 + 0.1 ln(factor) in its place, which for factors above
// 1 is the same number; ggml_rope_ext alone then agrees with ours.
TEST(RopeTest, YarnIsThatOfGgml) {
  for (float factor : {2.0f, 4.0f, 40.0f}) {
    RopeOptions options = Plain(RopeOrder::kNeox, 128);
    options.scaling = RopeScaling::kYarn;
    options.factor = factor;
    options.original_context = 4096;
    options.frequency_base = 1e6f;
    ExpectAsGgml(options);
    options.yarn_beta_fast = 16;
    options.yarn_beta_slow = 2;
    options.attention_factor = 0.8f;
    ExpectAsGgml(options);
  }
}

TEST(RopeTest, YarnLeavesFastPairsAndSlowsSlowOnes) {
  RopeOptions options = Plain(RopeOrder::kNeox, 128);
  options.scaling = RopeScaling::kYarn;
  options.factor = 4;
  options.original_context = 4096;
  RopeTable yarn(options);
  RopeTable plain(Plain(RopeOrder::kNeox, 128));
  std::vector<float> cosine(64), sine(64), plain_cosine(64), plain_sine(64);
  yarn.Angles(3, cosine.data(), sine.data());
  plain.Angles(3, plain_cosine.data(), plain_sine.data());
  const auto angle = [](float s, float c) { return std::atan2(s, c); };
  EXPECT_NEAR(angle(sine[0], cosine[0]), angle(plain_sine[0], plain_cosine[0]),
              1e-6);
  EXPECT_NEAR(angle(sine[63], cosine[63]),
              angle(plain_sine[63], plain_cosine[63]) / 4, 1e-9);
}

// Float would miss the angle of pair 0 by 0.03 rad at a position of a million.
TEST(RopeTest, AnglesStayExactAtLargePositions) {
  RopeTable rope(Plain(RopeOrder::kNormal, 64));
  std::vector<float> cosine(32), sine(32);
  const uint32_t position = 1'000'003;
  rope.Angles(position, cosine.data(), sine.data());
  for (uint32_t i = 0; i < 32; ++i) {
    const long double angle = position * std::pow(10000.0L, -2.0L * i / 64);
    EXPECT_NEAR(cosine[i], static_cast<double>(std::cos(angle)), 1e-7);
    EXPECT_NEAR(sine[i], static_cast<double>(std::sin(angle)), 1e-7);
  }
}

// The cache turns queries back by what the table tells it: every head that was
// turned by its position is the same one there, which has no spread.
TEST(RopeTest, ARotationTurnsBackWhatTheTableTurned) {
  constexpr KvShape kShape{
      .n_layers = 1, .n_kv_heads = 1, .group = 1, .head_dim = 16};
  for (RopeOrder order : {RopeOrder::kNormal, RopeOrder::kNeox}) {
    const RopeTable table(Plain(order, 12));
    ExpectedAttention expected(kShape, table.rotation(), 0);
    auto pages = SequencePages::Create(
        kShape,
        {.capacity_pages = 1, .capacity_pages_max = 1, .pages_per_lane = 1});
    ASSERT_TRUE(pages.ok());
    pages->Extend(0, 2);
    const auto turned_head = [&](uint32_t position) {
      std::vector<float> head(16), cosine(6), sine(6);
      for (uint32_t i = 0; i < 16; ++i) head[i] = static_cast<float>(i) - 7;
      table.Angles(position, cosine.data(), sine.data());
      RotateHead(order, cosine.data(), sine.data(), table.n_pairs(),
                 head.data());
      return head;
    };
    for (uint32_t position : {3u, 77u, 5000u}) {
      expected.Observe(0, position, turned_head(position).data(), 1);
    }
    // Two keys, one a little longer: the ratio of their weights is what the
    // unturned head alone says, without a variance.
    std::vector<float> key(16), value(16);
    key[13] = 1;  // does not turn
    pages->Write(*SelectKernels(nullptr), 0, 0, key.data(), value.data());
    key[13] = 2;
    pages->Write(*SelectKernels(nullptr), 0, 1, key.data(), value.data());
    std::vector<float> attention(2), logits(2);
    expected.Compute(0, 6000, *pages, attention, logits);
    EXPECT_NEAR(std::log(attention[1] / attention[0]), (13 - 7) / 4.0, 1e-3);
    // And of one that turns: the spread would show.
    key.assign(16, 0);
    pages->Write(*SelectKernels(nullptr), 0, 0, key.data(), value.data());
    for (uint32_t i = 0; i < 12; ++i) key[i] = 20;
    pages->Write(*SelectKernels(nullptr), 0, 1, key.data(), value.data());
    double product = 0;
    for (uint32_t j = 0; j < ExpectedAttention::kHorizonTokens; ++j) {
      const std::vector<float> head = turned_head(6000 + j);
      for (uint32_t i = 0; i < 12; ++i) product += 20.0 * head[i];
    }
    product /= ExpectedAttention::kHorizonTokens;
    expected.Compute(0, 6000, *pages, attention, logits);
    EXPECT_NEAR(std::log(attention[1] / attention[0]), product / 4.0, 0.01);
  }
}

}  // namespace
}  // namespace lkv
