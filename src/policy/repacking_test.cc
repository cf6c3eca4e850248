#include "policy/repacking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lkv {
namespace {

constexpr uint32_t kPages = 6;

struct Lane {
  std::vector<uint8_t> is_protected = std::vector<uint8_t>(kPages);
  std::vector<float> page_score = std::vector<float>(kPages);
  std::vector<float> slot_score = std::vector<float>(kPages * kPageTokens);
  std::vector<uint32_t> pages = std::vector<uint32_t>(kPages);
  std::vector<uint32_t> slots = std::vector<uint32_t>(kPages * kPageTokens);
  std::vector<uint32_t> victims = slots;

  SlotMoves Choose(uint32_t n_leave) {
    std::vector<float> attention = slot_score;
    std::vector<float> score = slot_score;
    return ChooseRepacking({.is_protected = is_protected,
                            .page_score = page_score,
                            .slot_attention = attention,
                            .slot_score = score,
                            .n_leave = n_leave},
                           {pages, slots, victims});
  }
};

Lane RandomLane() {
  std::mt19937 random(1);
  Lane lane;
  for (uint32_t slot = 0; slot < lane.slot_score.size(); ++slot) {
    lane.slot_score[slot] = static_cast<float>(random() % 1000);
    lane.page_score[slot / kPageTokens] += lane.slot_score[slot];
  }
  lane.is_protected[0] = lane.is_protected[kPages - 1] = 1;
  return lane;
}

std::vector<uint32_t> Listed(std::span<const uint32_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

TEST(RepackingTest, TheBestSlotsOfTheTwoLowestPagesShareOne) {
  Lane lane = RandomLane();
  std::vector<uint32_t> lowest = {1, 2, 3, 4};
  std::sort(lowest.begin(), lowest.end(), [&](uint32_t a, uint32_t b) {
    return lane.page_score[a] < lane.page_score[b];
  });
  lowest.resize(2);
  std::sort(lowest.begin(), lowest.end());
  const SlotMoves moves = lane.Choose(1);
  EXPECT_EQ(Listed(moves.pages), lowest);
  ASSERT_EQ(moves.slots.size(), kPageTokens);
  EXPECT_TRUE(std::is_sorted(moves.slots.begin(), moves.slots.end()));
  float lowest_kept = 1000;
  for (uint32_t slot : moves.slots) {
    lowest_kept = std::min(lowest_kept, lane.slot_score[slot]);
  }
  for (uint32_t page : lowest) {
    for (uint32_t i = 0; i < kPageTokens; ++i) {
      const uint32_t slot = page * kPageTokens + i;
      if (std::count(moves.slots.begin(), moves.slots.end(), slot) == 0) {
        EXPECT_LE(lane.slot_score[slot], lowest_kept) << "slot " << slot;
      }
    }
  }
}

TEST(RepackingTest, APageThatHasNobodyToShareWithLeavesWhole) {
  Lane lane = RandomLane();
  const SlotMoves moves = lane.Choose(4);
  EXPECT_EQ(Listed(moves.pages), (std::vector<uint32_t>{1, 2, 3, 4}));
  EXPECT_TRUE(moves.slots.empty());
}

TEST(RepackingTest, WherePagesAreFewFewerThanTwoShareOne) {
  Lane lane = RandomLane();
  const SlotMoves moves = lane.Choose(3);
  EXPECT_EQ(Listed(moves.pages), (std::vector<uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(moves.slots.size(), kPageTokens);
}

}  // namespace
}  // namespace lkv
