#include "policy/slot_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/linear_log2.h"
#include "policy/history_network.h"

namespace lkv {
namespace {

constexpr PolicyCapacity kCapacity = {.n_lanes = 2, .pages_per_lane = 20};
constexpr uint32_t kLane = 1;
constexpr uint32_t kPeakQuery = SlotHistory::kPeakQueries - 1;

class SlotHistoryTest : public ::testing::Test {
 protected:
  SlotHistoryTest() : history_({}, kCapacity, *SelectKernels(nullptr)) {}

  void Add(uint32_t n) {
    history_.AddSlots(kLane, n_slots_, n);
    n_slots_ += n;
  }
  // A query of position `query_pos` pays `mass` to each slot of `slots`.
  void Attend(uint32_t query_pos, float mass,
              const std::vector<uint32_t>& slots) {
    std::vector<float> row(n_slots_);
    for (uint32_t slot : slots) row[slot] = mass;
    history_.Observe({.lane = kLane,
                      .query_pos = query_pos,
                      .tokens_since = 1,
                      .n_slots = n_slots_,
                      .mass_max = row.data(),
                      .mass_mean = row.data()});
  }
  float Peak(uint32_t slot) const { return Input(1, slot); }
  float Average(uint32_t slot) const { return Input(0, slot); }
  float Input(uint32_t input, uint32_t slot) const {
    std::vector<float> inputs(HistoryNetwork::kInputs * size_t{n_slots_});
    history_.NetworkInputs(kLane, 0, n_slots_, inputs.data());
    return inputs[input * n_slots_ + slot];
  }

  SlotHistory history_;
  uint32_t n_slots_ = 0;
};

constexpr float kNever = -31;

TEST_F(SlotHistoryTest, PeaksAreTheMostThatFarQueriesPaid) {
  Add(100);
  Attend(kPeakQuery, 0.25f, {3});
  Attend(kPeakQuery + 8, 0.125f, {3, 5});
  EXPECT_EQ(Peak(3), -2);
  EXPECT_EQ(Peak(5), -3);
  EXPECT_EQ(Peak(7), kNever);
}

TEST_F(SlotHistoryTest, PeaksLeaveOutNearQueriesAndThoseThatTracesLeaveOut) {
  Add(100);
  const uint32_t first_near = 100 - SlotHistory::kFarTokens;
  Attend(kPeakQuery, 0.25f, {first_near - 1, first_near});
  EXPECT_EQ(Peak(first_near - 1), -2);
  EXPECT_EQ(Peak(first_near), kNever);
  for (uint32_t pos = 0; pos < kPeakQuery; ++pos) Attend(pos, 0.5f, {0});
  EXPECT_EQ(Peak(0), kNever);
}

TEST_F(SlotHistoryTest, TheFirstInputIsTheAverageThatForecastsTheNextSteps) {
  Add(100);
  for (uint32_t i = 0; i < 50; ++i) Attend(8 * i, 0.25f, {3});
  std::vector<float> next(n_slots_);
  history_.PredictNext(kLane, 0, next);
  EXPECT_GT(next[3], 0.1f);
  EXPECT_NEAR(Average(3), LinearLog2(next[3]), 1e-3);
}

TEST_F(SlotHistoryTest, FollowsSlotsThatMoveAndPagesThatLeave) {
  Add(160);
  Attend(kPeakQuery, 0.25f, {17, 40});
  // Page 1 leaves: slot 40 of page 2 becomes slot 24.
  history_.RemovePage(kLane, 1, 10);
  n_slots_ -= kPageTokens;
  EXPECT_EQ(Peak(24), -2);
  EXPECT_EQ(Peak(17), kNever);
  // Slots 24 .. 39 move to page 1.
  const std::vector<uint32_t> pages = {1, 2};
  std::vector<uint32_t> slots;
  for (uint32_t slot = 24; slot < 24 + kPageTokens; ++slot) {
    slots.push_back(slot);
  }
  history_.MoveSlots(kLane, {.pages = pages, .slots = slots});
  EXPECT_EQ(Peak(16), -2);
}

TEST_F(SlotHistoryTest, ANewTokenHasNoPeakOfTheOneBefore) {
  Add(160);
  Attend(kPeakQuery, 0.25f, {150 - SlotHistory::kFarTokens});
  history_.RemovePage(kLane, 5, 10);
  n_slots_ -= kPageTokens;
  Add(16);
  for (uint32_t slot = 144; slot < 160; ++slot) EXPECT_EQ(Peak(slot), kNever);
}

}  // namespace
}  // namespace lkv
