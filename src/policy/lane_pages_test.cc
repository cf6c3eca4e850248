#include "policy/lane_pages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "testing/resident_bytes.h"

namespace lkv {
namespace {

constexpr PolicyCapacity kCapacity = {.n_lanes = 2, .pages_per_lane = 4};

TEST(LanePagesTest, CountsSlotsPageByPage) {
  LanePages pages(kCapacity);
  pages.AddPage(0, 0);
  pages.AddPage(0, 16);
  EXPECT_EQ(pages.AddSlots(0, 20), 0u);
  EXPECT_EQ(pages.AddSlots(0, 3), 20u);
  EXPECT_EQ(pages.slots_in_page(0, 0), 16u);
  EXPECT_EQ(pages.slots_in_page(0, 1), 7u);
  EXPECT_EQ(pages.n_slots(1), 0u);
}

TEST(LanePagesTest, LaterPagesMoveDownWhenOneLeaves) {
  LanePages pages(kCapacity);
  for (uint32_t p = 0; p < 4; ++p) pages.AddPage(1, 16 * p);
  pages.AddSlots(1, 50);
  EXPECT_EQ(pages.RemovePage(1, 1), 4u);
  EXPECT_EQ(pages.n_pages(1), 3u);
  EXPECT_EQ(pages.n_slots(1), 34u);
  EXPECT_EQ(pages.first_pos(1, 0), 0u);
  EXPECT_EQ(pages.first_pos(1, 1), 32u);
  EXPECT_EQ(pages.slots_in_page(1, 2), 2u);
  pages.RemovePage(1, 2);  // the open page takes only what it holds
  EXPECT_EQ(pages.n_slots(1), 32u);
}

TEST(LaneArrayTest, ClosesTheGapWithinItsLane) {
  LaneArray<int> array(kCapacity, 2);
  for (int i = 0; i < 8; ++i) array.of(0)[i] = i;
  array.of(1)[0] = 100;
  array.RemovePage(0, 1, 4);
  const int expected[] = {0, 1, 4, 5, 6, 7};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(array.of(0)[i], expected[i]);
  EXPECT_EQ(array.of(1)[0], 100);
}

TEST(LaneArrayTest, ACopyHasTheSameValuesAndTakesMemoryForThoseInUseOnly) {
  constexpr PolicyCapacity kLarge = {.n_lanes = 16, .pages_per_lane = 4096};
  LaneArray<float> array(kLarge, kPageTokens);  // 4 MiB
  for (uint32_t lane = 0; lane < 16; ++lane) {
    for (uint32_t i = 0; i < 3000; ++i) {
      array.of(lane)[i] = static_cast<float>(lane * 10000 + i);
    }
  }
  const size_t before = ResidentBytes();
  const LaneArray<float> copy(array);
  EXPECT_LT(ResidentBytes(), before + (1 << 20));
  for (uint32_t lane = 0; lane < 16; ++lane) {
    EXPECT_TRUE(std::equal(copy.of(lane), copy.of(lane) + 4096 * kPageTokens,
                           array.of(lane)));
  }
}

TEST(LanePagesDeathTest, AnObservationMustNotCoverSlotsYoungerThanItsQuery) {
  LanePages pages(kCapacity);
  pages.AddPage(0, 0);
  pages.AddSlots(0, 10);
  pages.CheckSees({.lane = 0, .query_pos = 7, .n_slots = 8});
  EXPECT_DEATH(pages.CheckSees({.lane = 0, .query_pos = 7, .n_slots = 9}),
               "CHECK failed");
  EXPECT_DEATH(pages.CheckSees({.lane = 0, .query_pos = 99, .n_slots = 11}),
               "CHECK failed");
}

}  // namespace
}  // namespace lkv
