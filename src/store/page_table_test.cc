#include "store/page_table.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace lkv {
namespace {

TEST(PageTableTest, PositionsStayWithTheirPageWhenOthersLeave) {
  PageTable table(8);
  for (uint32_t i = 0; i < 4; ++i) {
    table.OpenPage(PageId{10 + i}, i * kPageTokens);
  }
  table.AddTokens(3 * kPageTokens + 5);
  EXPECT_EQ(table.Remove(1), PageId{11});
  EXPECT_EQ(table.n_pages(), 3u);
  EXPECT_EQ(table.n_tokens(), 2 * kPageTokens + 5);
  EXPECT_EQ(table.PositionOf(0), 0u);
  EXPECT_EQ(table.PositionOf(kPageTokens), 2 * kPageTokens);
  EXPECT_EQ(table.PositionOf(2 * kPageTokens + 4), 3 * kPageTokens + 4);
  EXPECT_EQ(table.page_ids()[1], 12u);
}

TEST(PageTableTest, RelocationChangesTheIdAlone) {
  PageTable table(2);
  table.OpenPage(PageId{7}, 32);
  table.AddTokens(4);
  table.Relocate(0, PageId{3});
  EXPECT_EQ(table.page_id(0), PageId{3});
  EXPECT_EQ(table.first_pos(0), 32u);
  EXPECT_EQ(table.n_tokens(), 4u);
}

TEST(PageTableTest, AgreesWithAListOfPositionsUnderRandomUse) {
  constexpr uint32_t kCapacity = 20;
  PageTable table(kCapacity);
  const uint32_t* storage = nullptr;
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
      table.OpenPage(PageId{0}, next_pos);
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
    if (storage == nullptr) storage = table.page_ids();
    ASSERT_EQ(table.page_ids(), storage);  // never reallocated
  }
}

TEST(PageTableDeathTest, AnOpenPageCannotLeave) {
  PageTable table(2);
  table.OpenPage(PageId{0}, 0);
  table.AddTokens(kPageTokens - 1);
  EXPECT_DEATH(table.Remove(0), "CHECK failed");
}

}  // namespace
}  // namespace lkv
