#include "policy/protection.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace lkv {
namespace {

constexpr ProtectedEnds kEnds = {.sink_tokens = 4, .recent_tokens = 128};

TEST(ProtectionTest, ContestableSlotsAreNeitherSinksNorRecent) {
  LaneRange slots = ContestableSlots(kEnds, 200);
  EXPECT_EQ(slots.begin, 4u);
  EXPECT_EQ(slots.end, 72u);
}

TEST(ProtectionTest, ShortLanesHaveNothingContestable) {
  for (uint32_t n : {0u, 1u, 4u, 128u, 132u}) {
    EXPECT_EQ(ContestableSlots(kEnds, n).count(), 0u) << n;
    EXPECT_EQ(ContestablePages(kEnds, n).count(), 0u) << n;
  }
}

TEST(ProtectionTest, ContestablePagesHoldContestableSlotsOnly) {
  // Slots 4..71 are contestable: page 0 has sinks, page 4 ends at slot 79.
  LaneRange pages = ContestablePages(kEnds, 200);
  EXPECT_EQ(pages.begin, 1u);
  EXPECT_EQ(pages.end, 4u);
}

TEST(ProtectionTest, ContestableMassSumsThatRange) {
  std::vector<float> mass(203);
  float expected = 0;
  for (uint32_t i = 0; i < mass.size(); ++i) {
    mass[i] = static_cast<float>(i);
    if (i >= 4 && i < 75) expected += mass[i];
  }
  EXPECT_FLOAT_EQ(ContestableMass(kEnds, mass.data(), 203), expected);
}

// Slot by slot, from the rules as they are worded.
bool SlotIsProtected(const ProtectedEnds& ends,
                     const std::vector<PositionRange>& pinned, uint32_t pos,
                     uint32_t newest_pos) {
  if (pos < ends.sink_tokens) return true;
  if (pos + ends.recent_tokens > newest_pos) return true;
  for (const PositionRange& pin : pinned) {
    if (pos >= pin.begin && pos < pin.end) return true;
  }
  return false;
}

TEST(ProtectionTest, AgreesWithEachSlotAskedAlone) {
  std::mt19937 random(11);
  auto up_to = [&](uint32_t n) -> uint32_t { return random() % (n + 1); };
  for (int round = 0; round < 500; ++round) {
    ProtectedEnds ends = {.sink_tokens = up_to(40), .recent_tokens = up_to(60)};
    uint32_t n_tokens = 1 + up_to(400);
    std::vector<PositionRange> pinned;
    for (uint32_t k = up_to(2); k > 0; --k) {
      uint32_t begin = up_to(n_tokens);
      pinned.push_back({begin, begin + up_to(30)});
    }
    // Some pages that may leave have left.
    std::vector<uint32_t> first_pos;
    uint32_t n_slots = 0;
    for (uint32_t pos = 0; pos < n_tokens; pos += kPageTokens) {
      uint32_t end = std::min(n_tokens, pos + kPageTokens);
      bool keep = end - pos < kPageTokens;
      for (uint32_t i = pos; i < end; ++i) {
        keep |= SlotIsProtected(ends, pinned, i, n_tokens - 1);
      }
      if (!keep && up_to(1) == 0) continue;
      first_pos.push_back(pos);
      n_slots += end - pos;
    }
    std::vector<uint8_t> is_protected(first_pos.size());
    MarkProtectedPages(ends, pinned, first_pos, n_slots, is_protected);
    for (size_t p = 0; p < first_pos.size(); ++p) {
      uint32_t end = std::min(n_tokens, first_pos[p] + kPageTokens);
      bool expected = end - first_pos[p] < kPageTokens;  // open
      for (uint32_t pos = first_pos[p]; pos < end; ++pos) {
        expected |= SlotIsProtected(ends, pinned, pos, n_tokens - 1);
      }
      ASSERT_EQ(is_protected[p] != 0, expected)
          << "round " << round << " page at " << first_pos[p] << " of "
          << n_tokens;
    }
  }
}

TEST(ProtectionTest, PagesOpenedAheadAreProtected) {
  std::vector<uint32_t> first_pos = {0, 16, 32};
  std::vector<uint8_t> is_protected(3);
  MarkProtectedPages({.sink_tokens = 0, .recent_tokens = 0}, {}, first_pos, 16,
                     is_protected);
  EXPECT_EQ(is_protected, (std::vector<uint8_t>{0, 1, 1}));
}

}  // namespace
}  // namespace lkv
