#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_cold.h"
#include "kernels/testing_pages.h"
#include "kernels/testing_sets.h"

namespace lkv {
namespace {

// Logits of all groups, the last first: digests may lie anywhere.
std::vector<float> Scan(const KernelTable& set, const ColdGroups& cold,
                        uint32_t group, const std::vector<float>& q) {
  std::vector<const uint8_t*> digests;
  for (uint32_t i = cold.n_groups(); i-- > 0;) {
    digests.push_back(cold.digest(i));
  }
  std::vector<float> logits(size_t{group} * cold.n_slots());
  set.scan_cold({.digests = digests.data(),
                 .n_groups = cold.n_groups(),
                 .head_dim = cold.head_dim,
                 .group = group,
                 .q = q.data(),
                 .logits = logits.data(),
                 .logit_stride = cold.n_slots()});
  // In the order of the groups.
  std::vector<float> sorted;
  for (uint32_t g = 0; g < group; ++g) {
    for (uint32_t i = cold.n_groups(); i-- > 0;) {
      const float* from = &logits[g * cold.n_slots() + i * kColdGroupSlots];
      sorted.insert(sorted.end(), from, from + kColdGroupSlots);
    }
  }
  return sorted;
}

// Rounding puts no product of a query and a scale off by more than half a unit
// of at most 1 / 63.5 of the largest, which counts 4 u times; the rest is f32.
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
      rounding += 0.5 * largest / 63.5 * 4 * (cold.KeyLevel(slot, d) / 4);
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

// Any query: all sets round it alike. A min of -1.5 scales takes away what is
// summed in f32.
TEST(ScanColdTest, EverySetRoundsTheQueryAlike) {
  Random random(4);
  for (uint32_t head_dim : {16, 64, 80, 256}) {
    ColdGroups cold(5, head_dim, &random);
    for (uint32_t i = 0; i < cold.n_groups(); ++i) {
      for (uint32_t d = 0; d < head_dim; ++d) {
        const float scale = static_cast<float>(1 + random.Below(100)) / 256;
        cold.SetKeyScale(i, d, scale, -1.5f * scale);
      }
    }
    for (uint32_t round = 0; round < 20; ++round) {
      const std::vector<float> q = ScaledQueries(3, head_dim, &random);
      const std::vector<float> expected =
          Scan(*SelectKernels("scalar"), cold, 3, q);
      for (const KernelTable* set : AllSets()) {
        ASSERT_EQ(Scan(*set, cold, 3, q), expected)
            << set->name << " " << head_dim;
      }
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
    set->scan_cold({.digests = &digest,
                    .n_groups = 1,
                    .head_dim = 64,
                    .group = 2,
                    .q = q.data(),
                    .logits = logits.data(),
                    .logit_stride = 100});
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
