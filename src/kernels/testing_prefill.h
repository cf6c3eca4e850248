// Shared by the tests of prefill attention: prompts, and what a kernel makes of
// them beside attention in double precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernel_table.h"
#include "kernels/testing_pages.h"
#include "kernels/testing_sets.h"

namespace lkv {

// A prompt of n_tokens in one lane, with a query group per token. A lane has
// head_dim, type_index(), Run(n_slots), Key(slot, d) and Value(slot, d).
template <typename Lane>
struct Prompt {
  Lane lane;
  uint32_t n_tokens;
  uint32_t group;
  std::vector<float> q;  // [n_tokens, group, head_dim]

  Prompt(Lane lane, uint32_t n_tokens, uint32_t group, Random* random)
      : lane(std::move(lane)),
        n_tokens(n_tokens),
        group(group),
        q(ScaledQueries(n_tokens * group, this->lane.head_dim, random)) {}

  size_t row() const { return size_t{group} * lane.head_dim; }
};

using PrefillFunction = void (*)(const AttendPrefillArgs& args);

// A prefill function of a set, and how far it may be from the truth.
struct Attention {
  const char* name;
  const PrefillFunction* functions;  // by the lane's type_index()
  double logit_error;                // absolute
  double weight_error;               // relative, of sums, too
  double output_error;               // absolute; values are in [-1, 1]
};

// bf16 rounds a factor by at most 2^-9 of it, so a logit q k by at most 2^-8 of
// the sum of |q k|: up to 0.03 with the queries of these tests. Twice that is
// how far weights are off, relative to the sum over all slots.
inline void AddAttentions(const char* set_name, const PrefillFunction* f32,
                          const PrefillFunction* bf16,
                          std::vector<Attention>* all) {
  all->push_back({set_name, f32, 1e-5, 1e-5, 5e-6});
  if (bf16[0] != f32[0]) {
    all->push_back({"bf16 products", bf16, 3e-2, 6e-2, 2e-2});
  }
}

// What one prefill call over the queries [first, last) returns.
struct Prefilled {
  std::vector<float> out, m, l, p, p_max;
  size_t n_padded, n_chunks;

  template <typename Lane>
  Prefilled(const Attention& attention, const Prompt<Lane>& prompt,
            uint32_t first, uint32_t last,
            const std::vector<uint32_t>& observed)
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

template <typename Lane>
void ExpectExact(const Attention& attention, const Prompt<Lane>& prompt,
                 uint32_t first, uint32_t last,
                 const std::vector<uint32_t>& observed) {
  const Lane& lane = prompt.lane;
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

}  // namespace lkv
