#include "store/page_table.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace lkv {
namespace {

uint8_t memory[16];  // its bytes stand for pages

TEST(PageTableTest, PositionsStayWithTheirPageWhenOthersLeave) {
  PageTable table(8);
  for (uint32_t i = 0; i < 4; ++i) {
    table.OpenPage(&memory[10 + i], i * kPageTokens);
  }
  table.AddTokens(3 * kPageTokens + 5);
  EXPECT_EQ(table.Remove(1), &memory[11]);
  EXPECT_EQ(table.n_pages(), 3u);
  EXPECT_EQ(table.n_tokens(), 2 * kPageTokens + 5);
  EXPECT_EQ(table.PositionOf(0), 0u);
  EXPECT_EQ(table.PositionOf(kPageTokens), 2 * kPageTokens);
  EXPECT_EQ(table.PositionOf(2 * kPageTokens + 4), 3 * kPageTokens + 4);
  EXPECT_EQ(table.pages()[1], &memory[12]);
}

TEST(PageTableTest, PositionsMoveWithTheirSlots) {
  PageTable table(8, PageTable::Slots::kMovable);
  for (uint32_t i = 0; i < 4; ++i) {
    table.OpenPage(&memory[10 + i], i * kPageTokens);
  }
  table.AddTokens(3 * kPageTokens + 5);
  // The upper halves of pages 1 and 2 share page 1; page 2 leaves.
  std::vector<uint32_t> slots;
  for (uint32_t page : {1u, 2u}) {
    for (uint32_t i = 8; i < 16; ++i) slots.push_back(page * kPageTokens + i);
  }
  const std::vector<uint32_t> pages = {1, 2};
  table.MoveSlots(pages, slots);
  EXPECT_EQ(table.Remove(2), &memory[12]);
  EXPECT_EQ(table.n_tokens(), 2 * kPageTokens + 5);
  for (uint32_t i = 0; i < kPageTokens; ++i) {
    EXPECT_EQ(table.PositionOf(i), i);
    EXPECT_EQ(table.PositionOf(kPageTokens + i), slots[i]);
  }
  EXPECT_EQ(table.PositionOf(2 * kPageTokens), 3 * kPageTokens);
  EXPECT_EQ(table.first_positions()[0], 0u);
  EXPECT_EQ(table.first_positions()[1], PageTable::kScattered);
  EXPECT_EQ(table.first_positions()[2], 3 * kPageTokens);

  // A copy knows as much, and goes on behind a scattered page.
  PageTable copy(table);
  for (uint32_t i = 0; i < 2 * kPageTokens + 5; ++i) {
    EXPECT_EQ(copy.PositionOf(i), table.PositionOf(i));
  }
  copy.AddTokens(kPageTokens - 5);
  copy.Remove(2);
  copy.OpenPage(memory, 4 * kPageTokens);
  copy.AddTokens(1);
  EXPECT_EQ(copy.PositionOf(2 * kPageTokens), 4 * kPageTokens);
}

TEST(PageTableTest, RelocationChangesThePlaceAlone) {
  PageTable table(2);
  table.OpenPage(&memory[7], 32);
  table.AddTokens(4);
  table.Relocate(0, &memory[3]);
  EXPECT_EQ(table.pages()[0], &memory[3]);
  EXPECT_EQ(table.first_positions()[0], 32u);
  EXPECT_EQ(table.n_tokens(), 4u);
}

TEST(PageTableTest, AgreesWithAListOfPositionsUnderRandomUse) {
  constexpr uint32_t kCapacity = 20;
  PageTable table(kCapacity);
  uint8_t* const* storage = nullptr;
  std::vector<uint32_t> positions;
  std::mt19937 rng(3);
  uint32_t next_pos = 0;
  uint32_t opened_to = 0;
  for (int round = 0; round < 3000; ++round) {
    const uint32_t n_full = table.n_tokens() / kPageTokens;
    if (n_full > 0 && (rng() % 3 == 0 || table.n_pages() == kCapacity)) {
      const uint32_t index = rng() % n_full;
      table.Remove(index);
      positions.erase(positions.begin() + index * kPageTokens,
                      positions.begin() + (index + 1) * kPageTokens);
    } else if (next_pos == opened_to) {
      table.OpenPage(memory, next_pos);
      opened_to += kPageTokens;
    } else {
      const uint32_t n = 1 + rng() % (opened_to - next_pos);
      table.AddTokens(n);
      for (uint32_t i = 0; i < n; ++i) positions.push_back(next_pos++);
    }
    ASSERT_EQ(table.n_tokens(), positions.size());
    for (uint32_t slot = 0; slot < positions.size(); ++slot) {
      ASSERT_EQ(table.PositionOf(slot), positions[slot]);
    }
    if (storage == nullptr) storage = table.pages().data();
    ASSERT_EQ(table.pages().data(), storage);  // never reallocated
  }
}

TEST(PageTableTest, ACopyHasTheSamePagesAndRoomForTheRest) {
  constexpr uint32_t kCapacity = 40;
  PageTable table(kCapacity);
  for (uint32_t i = 0; i < 3; ++i) {
    table.OpenPage(&memory[i], i * kPageTokens);
  }
  table.AddTokens(2 * kPageTokens + 1);
  PageTable copy = table;
  EXPECT_EQ(copy.n_tokens(), table.n_tokens());
  uint8_t* const* const storage = copy.pages().data();
  for (uint32_t i = 3; i < kCapacity; ++i) {
    copy.OpenPage(&memory[3], i * kPageTokens);
  }
  EXPECT_EQ(copy.pages().data(), storage);  // never reallocated
  EXPECT_EQ(copy.pages()[2], &memory[2]);
  EXPECT_EQ(copy.first_positions()[kCapacity - 1],
            (kCapacity - 1) * kPageTokens);
  EXPECT_EQ(table.n_pages(), 3u);
}

TEST(PageTableDeathTest, AnOpenPageCannotLeave) {
  PageTable table(2);
  table.OpenPage(memory, 0);
  table.AddTokens(kPageTokens - 1);
  EXPECT_DEATH(table.Remove(0), "CHECK failed");
}

}  // namespace
}  // namespace lkv
