#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_cold.h"
#include "kernels/testing_pages.h"
#include "kernels/testing_sets.h"

namespace lkv {
namespace {

std::vector<float> Scan(const KernelTable& set, const ColdGroups& cold,
                        uint32_t group, const std::vector<float>& q) {
  return Scanned(set, cold, group, q, cold.n_groups()).logits;
}

// Rounding puts no product of a query and a scale off by more than half a unit
// of at most 1 / 63.5 of the largest, which counts as often as four times the
// upper bits differ from 6; the rest is f32.
void ExpectEstimates(const ColdGroups& cold, const float* q,
                     const float* logits) {
  for (uint32_t slot = 0; slot < cold.n_slots(); ++slot) {
    const uint32_t group = slot / kColdGroupSlots;
    double largest = 0;
    for (uint32_t d = 0; d < cold.head_dim; ++d) {
      largest = std::fmax(largest, std::fabs(q[d] * cold.KeyScale(group, d)));
    }
    double exact = 0;
    double rounding = 1e-5;
    for (uint32_t d = 0; d < cold.head_dim; ++d) {
      exact += q[d] * cold.EstimatedKey(slot, d);
      const double level = 4 * (cold.KeyLevel(slot, d) / 4);
      rounding += 0.5 * largest / 63.5 * std::fabs(level - 6);
    }
    ASSERT_NEAR(logits[slot], exact, rounding) << slot;
  }
}

TEST(ScanColdTest, EverySetEstimatesWithinTheRoundingForEveryShape) {
  Random random(1);
  for (uint32_t head_dim : {16, 48, 64, 80, 96, 128, 256}) {
    const ColdGroups cold(3, head_dim, &random);
    for (uint32_t group = 1; group <= 9; ++group) {
      const std::vector<float> q = ScaledQueries(group, head_dim, &random);
      for (const KernelTable* set : AllSets()) {
        const std::vector<float> logits = Scan(*set, cold, group, q);
        for (uint32_t g = 0; g < group; ++g) {
          SCOPED_TRACE(::testing::Message() << set->name << " " << head_dim
                                            << " head " << g << "/" << group);
          ExpectEstimates(cold, &q[g * head_dim], &logits[g * cold.n_slots()]);
        }
      }
    }
  }
}

TEST(ScanColdTest, EverySetEstimatesForEveryNumberOfGroups) {
  Random random(2);
  const std::vector<float> q = ScaledQueries(3, 64, &random);
  for (uint32_t n_groups = 1; n_groups <= 19; ++n_groups) {
    const ColdGroups cold(n_groups, 64, &random);
    for (const KernelTable* set : AllSets()) {
      const std::vector<float> logits = Scan(*set, cold, 3, q);
      for (uint32_t g = 0; g < 3; ++g) {
        SCOPED_TRACE(::testing::Message() << set->name << " " << n_groups);
        ExpectEstimates(cold, &q[g * 64], &logits[g * cold.n_slots()]);
      }
    }
  }
}

// Integers whose largest magnitude is 126, times a scale of 1, are not rounded,
// so that logits are multiples of a half, and right in their last bit.
TEST(ScanColdTest, SumsOfIntegersAreExactInEverySet) {
  Random random(3);
  for (uint32_t head_dim : {16, 64, 80, 256}) {
    ColdGroups cold(5, head_dim, &random);
    std::vector<float> q(3 * head_dim);
    for (float& x : q) x = static_cast<float>(random.Below(253)) - 126;
    for (uint32_t g = 0; g < 3; ++g) q[g * head_dim + 7] = g == 1 ? 126 : -126;
    for (uint32_t i = 0; i < cold.n_groups(); ++i) {
      for (uint32_t d = 0; d < head_dim; ++d) cold.SetKeyScale(i, d, 1, 0.5f);
    }
    for (const KernelTable* set : AllSets()) {
      const std::vector<float> logits = Scan(*set, cold, 3, q);
      for (uint32_t g = 0; g < 3; ++g) {
        for (uint32_t slot = 0; slot < cold.n_slots(); ++slot) {
          double exact = 0;
          for (uint32_t d = 0; d < head_dim; ++d) {
            exact += q[g * head_dim + d] * cold.EstimatedKey(slot, d);
          }
          ASSERT_EQ(logits[g * cold.n_slots() + slot], exact)
              << set->name << " " << head_dim;
        }
      }
    }
  }
}

// Any query: all sets round it alike. A min of -7.5 scales takes away what is
// summed in f32.
TEST(ScanColdTest, EverySetRoundsTheQueryAlike) {
  Random random(4);
  for (uint32_t head_dim : {16, 64, 80, 256}) {
    ColdGroups cold(5, head_dim, &random);
    for (uint32_t i = 0; i < cold.n_groups(); ++i) {
      for (uint32_t d = 0; d < head_dim; ++d) {
        const float scale = static_cast<float>(1 + random.Below(100)) / 256;
        cold.SetKeyScale(i, d, scale, -7.5f * scale);
      }
    }
    for (uint32_t round = 0; round < 20; ++round) {
      const std::vector<float> q = ScaledQueries(3, head_dim, &random);
      const Scanned expected(*SelectKernels("scalar"), cold, 3, q, 5);
      for (const KernelTable* set : AllSets()) {
        const Scanned got(*set, cold, 3, q, 5);
        ASSERT_EQ(got.logits, expected.logits) << set->name << " " << head_dim;
        ASSERT_EQ(got.q, expected.q) << set->name << " " << head_dim;
        ASSERT_EQ(got.units, expected.units) << set->name << " " << head_dim;
        ASSERT_EQ(got.offsets, expected.offsets)
            << set->name << " " << head_dim;
      }
    }
  }
}

// Lengths of calls around what is folded and prefetched ahead.
TEST(ScanColdTest, ResultsDoNotDependOnHowGroupsAreCut) {
  Random random(7);
  const ColdGroups cold(21, 64, &random);
  const std::vector<float> q = ScaledQueries(3, 64, &random);
  for (const KernelTable* set : AllSets()) {
    const Scanned whole(*set, cold, 3, q, 21);
    for (uint32_t n : {1u, 2u, 7u, 8u, 9u, 20u}) {
      const Scanned cut(*set, cold, 3, q, n);
      EXPECT_EQ(cut.logits, whole.logits) << set->name << " " << n;
      EXPECT_EQ(cut.q, whole.q) << set->name << " " << n;
      EXPECT_EQ(cut.units, whole.units) << set->name << " " << n;
      EXPECT_EQ(cut.offsets, whole.offsets) << set->name << " " << n;
    }
  }
}

TEST(ScanColdTest, QueriesAndScalesOfZeroLeaveWhatMinsSay) {
  Random random(5);
  ColdGroups cold(2, 64, &random);
  for (uint32_t d = 0; d < 64; ++d) cold.SetKeyScale(1, d, 0, 0.25f);
  std::vector<float> q(128, 0.0f);
  for (uint32_t d = 0; d < 64; ++d) q[64 + d] = 0.5f;
  for (const KernelTable* set : AllSets()) {
    const std::vector<float> logits = Scan(*set, cold, 2, q);
    for (uint32_t slot = 0; slot < cold.n_slots(); ++slot) {
      ASSERT_EQ(logits[slot], 0.0f) << set->name;
    }
    for (uint32_t slot = kColdGroupSlots; slot < cold.n_slots(); ++slot) {
      ASSERT_EQ(logits[cold.n_slots() + slot], 8.0f) << set->name;
    }
  }
}

TEST(ScanColdTest, RowsOfLogitsMayLieApart) {
  Random random(6);
  const ColdGroups cold(1, 64, &random);
  const std::vector<float> q = ScaledQueries(2, 64, &random);
  const uint8_t* digest = cold.digest(0);
  for (const KernelTable* set : AllSets()) {
    std::vector<float> logits(100 + kColdGroupSlots, -1.0f);
    std::vector<int8_t> folded(2 * 64);
    float units[2], offsets[2];
    set->scan_cold({.digests = &digest,
                    .first_group = 0,
                    .n_groups = 1,
                    .q = q.data(),
                    .to = {.group = 2,
                           .head_dim = 64,
                           .logits = logits.data(),
                           .logit_stride = 100,
                           .q = folded.data(),
                           .units = units,
                           .offsets = offsets}});
    const std::vector<float> close = Scan(*set, cold, 2, q);
    for (uint32_t slot = 0; slot < kColdGroupSlots; ++slot) {
      EXPECT_EQ(logits[slot], close[slot]);
      EXPECT_EQ(logits[100 + slot], close[kColdGroupSlots + slot]);
    }
    for (uint32_t i = kColdGroupSlots; i < 100; ++i) {
      EXPECT_EQ(logits[i], -1.0f) << set->name;
    }
  }
}

}  // namespace
}  // namespace lkv
