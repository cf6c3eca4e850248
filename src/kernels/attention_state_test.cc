#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_pages.h"
#include "kernels/testing_sets.h"

namespace lkv {
namespace {

constexpr uint32_t kGroup = 3;
constexpr uint32_t kHeadDim = 64;

struct State {
  std::vector<float> m, l, o;

  // Attention over the pages of a lane from first_page on.
  State(const TestLane& lane, uint32_t first_page, uint32_t n_slots,
        const std::vector<float>& q)
      : m(kGroup), l(kGroup), o(kGroup * kHeadDim) {
    PageRun run = lane.Run(n_slots);
    run.pages += first_page;
    SelectKernels(nullptr)->attend_decode[lane.type_index()](
        {.run = run,
         .group = kGroup,
         .q = q.data(),
         .m = m.data(),
         .l = l.data(),
         .o = o.data(),
         .p = nullptr,
         .p_stride = 0,
         .p_max = nullptr,
         .p_max_stride = 0});
  }

  void Merge(const State& run) {
    MergeAttentionStates(kGroup, kHeadDim, run.m.data(), run.l.data(),
                         run.o.data(), m.data(), l.data(), o.data());
  }
};

TEST(MergeAttentionStatesTest, PartsGiveTheStateOfTheWhole) {
  Random random(1);
  TestLane lane(KvType::kF16, kHeadDim, 1000, &random);
  std::vector<float> q = ScaledQueries(kGroup, kHeadDim, &random);
  State whole(lane, 0, 1000, q);
  for (uint32_t split : {1, 16, 30, 62}) {  // pages
    State merged(lane, 0, split * kPageSlots, q);
    merged.Merge(State(lane, split, 1000 - split * kPageSlots, q));
    for (uint32_t g = 0; g < kGroup; ++g) {
      EXPECT_EQ(merged.m[g], whole.m[g]);
      EXPECT_NEAR(merged.l[g] / whole.l[g], 1, 1e-5);
      for (uint32_t d = 0; d < kHeadDim; ++d) {
        uint32_t i = g * kHeadDim + d;
        EXPECT_NEAR(merged.o[i] / merged.l[g], whole.o[i] / whole.l[g], 1e-5);
      }
    }
  }
}

TEST(MergeAttentionStatesTest, AnEmptyRunChangesNothing) {
  Random random(2);
  TestLane lane(KvType::kF16, kHeadDim, 100, &random);
  std::vector<float> q = ScaledQueries(kGroup, kHeadDim, &random);
  State before(lane, 0, 100, q);
  State after = before;
  after.Merge(State(lane, 0, 0, q));
  EXPECT_EQ(after.m, before.m);
  EXPECT_EQ(after.l, before.l);
  EXPECT_EQ(after.o, before.o);
}

TEST(MergeAttentionStatesTest, AnEmptyStateBecomesTheRun) {
  Random random(3);
  TestLane lane(KvType::kF16, kHeadDim, 100, &random);
  std::vector<float> q = ScaledQueries(kGroup, kHeadDim, &random);
  State run(lane, 0, 100, q);
  State merged(lane, 0, 0, q);
  merged.Merge(run);
  EXPECT_EQ(merged.m, run.m);
  EXPECT_EQ(merged.l, run.l);
  EXPECT_EQ(merged.o, run.o);
}

TEST(MergeAttentionStatesTest, TwoEmptyStatesStayEmpty) {
  Random random(4);
  TestLane lane(KvType::kF16, kHeadDim, 16, &random);
  std::vector<float> q = ScaledQueries(kGroup, kHeadDim, &random);
  State merged(lane, 0, 0, q);
  merged.Merge(State(lane, 0, 0, q));
  for (float m : merged.m) {
    EXPECT_EQ(m, -std::numeric_limits<float>::infinity());
  }
  for (float l : merged.l) EXPECT_EQ(l, 0.0f);
  for (float o : merged.o) EXPECT_EQ(o, 0.0f);
}

}  // namespace
}  // namespace lkv
