#include "cache/sequence_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <utility>

namespace lkv {
namespace {

constexpr KvShape kShape{
    .n_layers = 20, .n_kv_heads = 2, .group = 1, .head_dim = 64};

// What a page of a lane is filled with in these tests.
uint8_t Fill(uint32_t lane, uint32_t first_pos) {
  return static_cast<uint8_t>(lane * 31 + first_pos / kPageTokens * 7 + 1);
}

void ExpectPayloads(SequencePages& pages) {
  for (uint32_t lane = 0; lane < pages.n_lanes(); ++lane) {
    const PageTable& table = pages.table(lane);
    for (uint32_t i = 0; i < table.n_pages(); ++i) {
      const uint8_t* page = pages.PageOfSlot(lane, i * kPageTokens);
      const uint8_t fill = Fill(lane, table.first_positions()[i]);
      ASSERT_EQ(page[0], fill);
      ASSERT_EQ(page[kShape.page_bytes(KvType::kF16) - 1], fill);
    }
  }
}

SequencePages Empty(uint32_t pages_per_lane) {
  return SequencePages::Create(
             kShape, {.capacity_pages = kShape.n_lanes() * pages_per_lane,
                      .capacity_pages_max = kShape.n_lanes() * pages_per_lane,
                      .pages_per_lane = pages_per_lane})
      .value();
}

SequencePages Filled(uint32_t pages_per_lane) {
  SequencePages pages = Empty(pages_per_lane);
  pages.Extend(0, pages_per_lane * kPageTokens);
  for (uint32_t lane = 0; lane < pages.n_lanes(); ++lane) {
    for (uint32_t i = 0; i < pages_per_lane; ++i) {
      std::memset(pages.PageOfSlot(lane, i * kPageTokens),
                  Fill(lane, i * kPageTokens), kShape.page_bytes(KvType::kF16));
    }
  }
  return pages;
}

// For the pages in use and an extent of each lane to grow into.
uint32_t SlabsThatSuffice(const SequencePages& pages) {
  return pages.pool().SlabsOf(pages.pool().n_used() +
                              pages.n_lanes() * PageAllocator::kExtentPages);
}

TEST(SequencePagesTest, ExtendOpensPagesOnlyAtPageBorders) {
  SequencePages pages = Empty(2);
  EXPECT_EQ(SequencePages::PagesToOpen(0, 1), 1u);
  EXPECT_EQ(SequencePages::PagesToOpen(1, 15), 0u);
  EXPECT_EQ(SequencePages::PagesToOpen(15, 2), 1u);
  pages.Extend(0, 10);
  pages.Extend(10, 6);
  EXPECT_EQ(pages.pool().n_used(), 40u);
  pages.Extend(16, 1);
  EXPECT_EQ(pages.pool().n_used(), 80u);
  EXPECT_EQ(pages.table(39).n_tokens(), 17u);
}

// 64-page slabs below 16 MiB, 512-page slabs above.
class SequencePagesCompactTest : public testing::TestWithParam<uint32_t> {};

TEST_P(SequencePagesCompactTest, EmptiesSlabsAndKeepsPayloads) {
  SequencePages pages = Filled(GetParam());
  // Three of four pages leave, all over the pool.
  std::mt19937 rng(4);
  for (uint32_t lane = 0; lane < pages.n_lanes(); ++lane) {
    while (pages.table(lane).n_pages() > GetParam() / 4) {
      pages.Remove(lane, rng() % pages.table(lane).n_pages());
    }
  }
  const uint32_t enough = SlabsThatSuffice(pages);
  EXPECT_GT(pages.pool().n_slabs_in_use(), enough + 1);
  uint32_t before = pages.pool().n_used();
  for (int i = 0; i < 1000; ++i) pages.Compact();
  EXPECT_LE(pages.pool().n_slabs_in_use(), enough + 1);
  EXPECT_EQ(pages.pool().n_used(), before);
  ExpectPayloads(pages);
}

INSTANTIATE_TEST_SUITE_P(PagesPerLane, SequencePagesCompactTest,
                         testing::Values(40, 160));

TEST(SequencePagesTest, OneCallMovesABoundedNumberOfPages) {
  SequencePages pages = Filled(80);
  for (uint32_t lane = 0; lane < pages.n_lanes(); ++lane) {
    // The last pages stay, so three quarters of them have to move.
    while (pages.table(lane).n_pages() > 4) pages.Remove(lane, 0);
  }
  const uint8_t* const end =
      pages.pool().PageAt(pages.pool().PagesIn(SlabsThatSuffice(pages)));
  const auto low_pages = [&] {
    uint32_t n = 0;
    for (uint32_t lane = 0; lane < pages.n_lanes(); ++lane) {
      for (uint32_t i = 0; i < pages.table(lane).n_pages(); ++i) {
        n += pages.table(lane).pages()[i] < end;
      }
    }
    return n;
  };
  const uint32_t at_first = low_pages();
  for (uint32_t before = at_first, call = 0; call < 16; ++call) {
    pages.Compact();
    EXPECT_LE(low_pages(), before + SequencePages::kMaxMovesPerCompact);
    before = low_pages();
  }
  EXPECT_GT(low_pages(), at_first + 100);
}

// Two exact pages per lane come from their own pool, and are read beside the
// others as one run.
TEST(SequencePagesTest, PagesOfInt8BeginWithExactOnes) {
  constexpr uint32_t kLanes = kShape.n_lanes();
  const size_t f16_bytes = kShape.page_bytes(KvType::kF16);
  const size_t int8_bytes = kShape.page_bytes(KvType::kInt8);
  SequencePages pages =
      SequencePages::Create(kShape, {.type = KvType::kInt8,
                                     .n_exact_pages = 2,
                                     .capacity_pages = 4 * kLanes,
                                     .capacity_pages_max = 6 * kLanes,
                                     .pages_per_lane = 6})
          .value();
  pages.Extend(0, 10);
  EXPECT_EQ(pages.n_used(), kLanes);
  EXPECT_EQ(pages.n_free(), 3 * kLanes);
  EXPECT_EQ(pages.payload_bytes(), kLanes * f16_bytes);
  pages.Extend(10, 54);
  EXPECT_EQ(pages.n_free(), 0u);
  EXPECT_EQ(pages.payload_bytes(), 2 * kLanes * (f16_bytes + int8_bytes));
  EXPECT_EQ(pages.TypeOfSlot(31), KvType::kF16);
  EXPECT_EQ(pages.TypeOfSlot(32), KvType::kInt8);
  pages.Grow(6 * kLanes);
  pages.Extend(64, 32);

  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const PageRun whole = pages.Run(lane, 0, 96);
    const PageRun from_second = pages.Run(lane, 16, 80);
    const PageRun from_third = pages.Run(lane, 32, 64);
    EXPECT_EQ(whole.n_exact_pages, 2u);
    EXPECT_EQ(from_second.n_exact_pages, 1u);
    EXPECT_EQ(from_third.n_exact_pages, 0u);
    for (uint32_t i = 0; i < 6; ++i) {
      const uint8_t* page = pages.PageOfSlot(lane, i * kPageTokens);
      EXPECT_EQ(whole.pages[i], page);
      if (i < 2) continue;
      EXPECT_EQ(from_second.pages[i - 1], page);
      EXPECT_EQ(from_third.pages[i - 2], page);
    }
  }
  pages.Remove(3, 2);
  EXPECT_EQ(pages.n_free(), 1u);
  EXPECT_EQ(pages.table(3).n_tokens(), 80u);
  EXPECT_DEATH(pages.Remove(3, 1), "");
}

TEST(SequencePagesTest, AForkReadsTheSamePagesAndWritesToItsOwn) {
  SequencePages pages = Empty(4);
  pages.Extend(0, 40);  // two pages and a half
  const PagePool& common = pages.pool();
  SequencePages fork = pages.Fork().value();
  EXPECT_EQ(fork.n_used(), 120u);
  EXPECT_EQ(fork.n_free(), 40u);
  EXPECT_EQ(fork.shared_bytes(), fork.payload_bytes());
  const auto same_page = [&](uint32_t slot) {
    return pages.PageOfSlot(5, slot) == fork.PageOfSlot(5, slot);
  };
  EXPECT_TRUE(same_page(0) && same_page(16) && same_page(32));
  *pages.PageOfSlot(5, 39) = 77;
  fork.Extend(40, 1);
  EXPECT_TRUE(same_page(0) && same_page(16));
  EXPECT_FALSE(same_page(32));
  EXPECT_EQ(*fork.PageOfSlot(5, 39), 77);
  EXPECT_EQ(pages.shared_bytes(), 2 * 40 * 4096u);
  // Nobody else holds the page that it goes on to write.
  uint8_t* const last = pages.PageOfSlot(5, 39);
  pages.Extend(40, 1);
  EXPECT_EQ(pages.PageOfSlot(5, 39), last);
  EXPECT_EQ(common.n_used(), 120u);
  fork.Remove(5, 1);
  EXPECT_EQ(common.n_used(), 120u);
  pages.Remove(5, 1);
  EXPECT_EQ(common.n_used(), 119u);
}

TEST(SequencePagesTest, SharedPagesStayInALoosePool) {
  SequencePages pages = Filled(80);
  SequencePages fork = pages.Fork().value();
  std::mt19937 rng(6);
  for (uint32_t lane = 0; lane < pages.n_lanes(); ++lane) {
    while (pages.table(lane).n_pages() > 10) {
      const uint32_t index = rng() % pages.table(lane).n_pages();
      pages.Remove(lane, index);
      fork.Remove(lane, index);
    }
  }
  const uint64_t shared_bytes = pages.shared_bytes();
  EXPECT_EQ(shared_bytes, pages.payload_bytes());
  for (int i = 0; i < 100; ++i) {
    pages.Compact();
    fork.Compact();
  }
  EXPECT_EQ(pages.shared_bytes(), shared_bytes);
  ExpectPayloads(pages);
  { const SequencePages gone = std::move(fork); }
  EXPECT_EQ(pages.shared_bytes(), 0u);
  for (int i = 0; i < 1000; ++i) pages.Compact();
  EXPECT_GT(pages.pool().n_used(), 200u);  // what nobody else holds moves
  ExpectPayloads(pages);
}

// After the first fork a pool has room beside others' pages, so later ones
// leave the parent where it is.
TEST(SequencePagesTest, OnlyTheFirstForkGivesTheParentAnotherPool) {
  SequencePages pages = Empty(4);
  pages.Extend(0, 32);
  const PagePool* const first = &pages.pool();
  { const SequencePages fork = pages.Fork().value(); }
  const PagePool* const second = &pages.pool();
  EXPECT_NE(second, first);
  pages.Extend(32, 16);
  SequencePages fork = pages.Fork().value();
  EXPECT_EQ(&pages.pool(), second);
  EXPECT_EQ(second->n_used(), 40u);
  // The fork keeps what the parent gives back.
  for (uint32_t lane = 0; lane < pages.n_lanes(); ++lane) pages.Remove(lane, 2);
  EXPECT_EQ(second->n_used(), 40u);
  pages.Extend(48, 16);
  EXPECT_EQ(second->n_used(), 80u);
  EXPECT_NE(pages.PageOfSlot(7, 32), fork.PageOfSlot(7, 32));
  for (uint32_t lane = 0; lane < pages.n_lanes(); ++lane) fork.Remove(lane, 2);
  EXPECT_EQ(second->n_used(), 40u);
}

TEST(SequencePagesTest, AFullPoolIsLeftAlone) {
  SequencePages pages = Filled(40);
  for (uint32_t lane = 0; lane < pages.n_lanes(); ++lane) {
    pages.Remove(lane, 5);  // the spare page of a steady state
  }
  const std::vector<uint8_t*> before(pages.table(0).pages().begin(),
                                     pages.table(0).pages().end());
  for (int i = 0; i < 100; ++i) pages.Compact();
  EXPECT_TRUE(std::equal(before.begin(), before.end(),
                         pages.table(0).pages().begin(),
                         pages.table(0).pages().end()));
}

}  // namespace
}  // namespace lkv
