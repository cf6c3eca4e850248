#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernel_table.h"
#include "kernels/testing_pages.h"
#include "kernels/testing_sets.h"

namespace lkv {
namespace {

// A prompt of n_tokens in one lane, with a query group per token.
struct Prompt {
  TestLane lane;
  uint32_t n_tokens;
  uint32_t group;
  std::vector<float> q;  // [n_tokens, group, head_dim]

  Prompt(KvType type, uint32_t head_dim, uint32_t n_tokens, uint32_t group,
         Random* random)
      : lane(type, head_dim, n_tokens, random),
        n_tokens(n_tokens),
        group(group),
        q(ScaledQueries(n_tokens * group, head_dim, random)) {}

  size_t row() const { return size_t{group} * lane.head_dim; }
};

// One of the two functions of a set, and how far it may be from the truth.
struct Attention {
  const char* name;
  void (*const* functions)(const AttendPrefillArgs& args);  // [kKvTypes]
  double logit_error;                                       // absolute
  double weight_error;  // relative, of sums, too
  double output_error;  // absolute; values are in [-1, 1]
};

// bf16 rounds a factor by at most 2^-9 of it, so a logit q k by at most 2^-8 of
// the sum of |q k|: up to 0.03 with the queries of these tests. Twice that is
// how far weights are off, relative to the sum over all slots.
std::vector<Attention> AllAttentions() {
  std::vector<Attention> all;
  for (const KernelTable* set : AllSets()) {
    all.push_back({set->name, set->attend_prefill, 1e-5, 1e-5, 5e-6});
    if (set->attend_prefill_bf16[0] != set->attend_prefill[0]) {
      all.push_back(
          {"bf16 products", set->attend_prefill_bf16, 3e-2, 6e-2, 2e-2});
    }
  }
  return all;
}

// What one prefill call over the queries [first, last) returns.
struct Prefilled {
  std::vector<float> out, m, l, p, p_max;
  size_t n_padded, n_chunks;

  Prefilled(const Attention& attention, const Prompt& prompt, uint32_t first,
            uint32_t last, const std::vector<uint32_t>& observed)
      : out((last - first) * prompt.row()),
        m((last - first) * prompt.group),
        l(m.size()) {
    n_padded = (last + kPageSlots - 1) / kPageSlots * kPageSlots;
    n_chunks = (last + kAttendChunkSlots - 1) / kAttendChunkSlots;
    p.assign(observed.size() * prompt.group * n_padded, -1.0f);
    p_max.assign(observed.size() * prompt.group * n_chunks, -1.0f);
    AlignedBuffer<float> scratch(AttendPrefillScratch(prompt.lane.head_dim));
    attention.functions[prompt.lane.type_index()](
        {.run = prompt.lane.Run(last),
         .group = prompt.group,
         .n_queries = last - first,
         .n_visible = first + 1,
         .q = prompt.q.data() + first * prompt.row(),
         .q_stride = prompt.row(),
         .out = out.data(),
         .out_stride = prompt.row(),
         .m = m.data(),
         .l = l.data(),
         .observed = observed.data(),
         .n_observed = static_cast<uint32_t>(observed.size()),
         .p = p.data(),
         .p_stride = n_padded,
         .p_max = p_max.data(),
         .p_max_stride = n_chunks,
         .scratch = scratch.data()});
  }
};

void ExpectExact(const Attention& attention, const Prompt& prompt,
                 uint32_t first, uint32_t last,
                 const std::vector<uint32_t>& observed) {
  const TestLane& lane = prompt.lane;
  SCOPED_TRACE(::testing::Message()
               << attention.name << " type " << lane.type_index()
               << " head_dim " << lane.head_dim << " queries " << first
               << " to " << last << " group " << prompt.group);
  Prefilled got(attention, prompt, first, last, observed);
  for (uint32_t i = 0; i < last - first; ++i) {
    auto at = std::find(observed.begin(), observed.end(), i);
    for (uint32_t g = 0; g < prompt.group; ++g) {
      size_t row = size_t{i} * prompt.group + g;
      uint32_t n_visible = first + i + 1;
      ExactAttention exact(
          lane, n_visible,
          &prompt.q[(first + i) * prompt.row() + g * lane.head_dim]);
      ASSERT_NEAR(got.m[row], exact.max_logit, attention.logit_error) << row;
      ASSERT_NEAR(got.l[row] / exact.sum, 1, attention.weight_error) << row;
      for (uint32_t d = 0; d < lane.head_dim; ++d) {
        ASSERT_NEAR(got.out[row * lane.head_dim + d], exact.output[d],
                    attention.output_error)
            << row << " " << d;
      }
      if (at == observed.end()) continue;
      size_t kept = (at - observed.begin()) * prompt.group + g;
      for (uint32_t slot = 0; slot < got.n_padded; ++slot) {
        float p = got.p[kept * got.n_padded + slot];
        if (slot >= n_visible) {
          ASSERT_EQ(p, 0.0f) << row << " " << slot;
          continue;
        }
        size_t chunk = slot / kAttendChunkSlots;
        double p_max = got.p_max[kept * got.n_chunks + chunk];
        double weight = p * std::exp(p_max - got.m[row]) / got.l[row];
        ASSERT_NEAR(weight, exact.weights[slot],
                    attention.weight_error * exact.weights[slot] + 1e-9)
            << row << " " << slot;
      }
      for (size_t c = 0; c < got.n_chunks; ++c) {
        float p_max = got.p_max[kept * got.n_chunks + c];
        ASSERT_TRUE(std::isfinite(p_max)) << row << " chunk " << c;
        ASSERT_LE(p_max, got.m[row]) << row << " chunk " << c;
      }
    }
  }
}

TEST(AttendPrefillTest, EveryKernelAgreesWithDoublePrecisionForEveryShape) {
  Random random(1);
  for (uint32_t head_dim : {16, 64, 80, 96, 128, 256}) {
    for (KvType type : kAllKvTypes) {
      for (uint32_t group : {1, 2, 3, 5, 8, 9}) {
        Prompt prompt(type, head_dim, 41, group, &random);
        for (const Attention& attention : AllAttentions()) {
          ExpectExact(attention, prompt, 0, 41, {0, 7, 40});
        }
      }
    }
  }
}

TEST(AttendPrefillTest, EveryKernelAgreesAcrossChunkBorders) {
  Random random(2);
  for (KvType type : kAllKvTypes) {
    Prompt prompt(type, 64, 530, 3, &random);
    for (const Attention& attention : AllAttentions()) {
      ExpectExact(attention, prompt, 230, 275, {0, 8, 16, 24, 32, 44});
      ExpectExact(attention, prompt, 500, 530, {0, 11, 12, 13, 29});
      ExpectExact(attention, prompt, 529, 530, {0});
      ExpectExact(attention, prompt, 255, 257, {});
    }
  }
}

TEST(AttendPrefillTest, NaNBehindTheEndIsNotSeen) {
  Random random(3);
  for (const Attention& attention : AllAttentions()) {
    for (KvType type : kAllKvTypes) {
      Prompt prompt(type, 64, 37, 3, &random);
      prompt.lane.PoisonFrom(37);
      ExpectExact(attention, prompt, 0, 37, {36});
    }
  }
}

// Strict mode: the same slots, cut in any way, give the same bits.
TEST(AttendPrefillTest, ResultsDoNotDependOnHowThePromptIsCut) {
  Random random(4);
  Prompt prompt(KvType::kF16, 64, 300, 3, &random);
  for (const Attention& attention : AllAttentions()) {
    Prefilled whole(attention, prompt, 0, 300, {});
    for (uint32_t chunk : {1, 7, 64, 256, 299}) {
      for (uint32_t first = 0; first < 300; first += chunk) {
        uint32_t last = std::min(first + chunk, 300u);
        Prefilled part(attention, prompt, first, last, {});
        auto expect_equal = [&](const std::vector<float>& of_part,
                                const std::vector<float>& of_whole,
                                size_t row) {
          for (size_t i = 0; i < of_part.size(); ++i) {
            ASSERT_EQ(of_part[i], of_whole[first * row + i])
                << attention.name << " chunk " << chunk << " first " << first;
          }
        };
        expect_equal(part.out, whole.out, prompt.row());
        expect_equal(part.m, whole.m, prompt.group);
        expect_equal(part.l, whole.l, prompt.group);
      }
    }
  }
}

TEST(AttendPrefillTest, ObservingAQueryDoesNotChangeIt) {
  Random random(5);
  Prompt prompt(KvType::kF16, 64, 290, 2, &random);
  for (const Attention& attention : AllAttentions()) {
    Prefilled without(attention, prompt, 200, 290, {});
    Prefilled with(attention, prompt, 200, 290, {3, 57, 89});
    EXPECT_EQ(with.out, without.out) << attention.name;
    EXPECT_EQ(with.l, without.l) << attention.name;
  }
}

}  // namespace
}  // namespace lkv
