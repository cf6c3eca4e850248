#include "store/page_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace lkv {
namespace {

constexpr uint32_t kExtentPages = PageAllocator::kExtentPages;

TEST(PageAllocatorTest, TakeFindsTheOnlyFreePageAmongThousands) {
  constexpr uint32_t kPages = 3 * 64 * 64 + 5;
  PageAllocator pages(kPages, kPages, /*n_owners=*/0);
  for (uint32_t i = 0; i < kPages; ++i) EXPECT_EQ(pages.Take(), i);
  EXPECT_EQ(pages.n_free(), 0u);
  for (uint32_t page : {kPages - 1, 64u * 64 * 2, 1u}) {
    pages.Give(page);
    EXPECT_EQ(pages.Take(), page);
  }
}

// Owners take turns, as lanes do when each opens a page in the same step.
TEST(PageAllocatorTest, AnOwnersPagesLieNextToEachOther) {
  constexpr uint32_t kOwners = 5;
  PageAllocator pages(1000, 1000, kOwners);
  for (uint32_t i = 0; i < 2 * kExtentPages; ++i) {
    for (uint32_t owner = 0; owner < kOwners; ++owner) {
      const uint32_t extent = i / kExtentPages * kOwners + owner;
      EXPECT_EQ(pages.TakeFor(owner), extent * kExtentPages + i % kExtentPages);
    }
  }
}

TEST(PageAllocatorTest, WhatAnOwnerGaveItGetsAgain) {
  PageAllocator pages(1000, 1000, 2);
  std::vector<uint32_t> taken;
  for (uint32_t i = 0; i < 40; ++i) {
    taken.push_back(pages.TakeFor(0));
    pages.TakeFor(1);
  }
  for (uint32_t i : {3, 20, 4}) pages.Give(taken[i]);
  EXPECT_EQ(pages.TakeFor(1), taken[39] + kExtentPages + 1);
  // Extent by extent, the one that was full last first.
  EXPECT_EQ(pages.TakeFor(0), taken[20]);
  EXPECT_EQ(pages.TakeFor(0), taken[3]);
  EXPECT_EQ(pages.TakeFor(0), taken[4]);
}

TEST(PageAllocatorTest, AnEmptyExtentIsAnybodys) {
  PageAllocator pages(2 * kExtentPages, 2 * kExtentPages, 3);
  for (uint32_t i = 0; i < kExtentPages; ++i) pages.TakeFor(0);
  pages.TakeFor(1);
  for (uint32_t i = 0; i < kExtentPages; ++i) pages.Give(i);
  EXPECT_EQ(pages.TakeFor(2), 0u);
  EXPECT_EQ(pages.TakeFor(0), 1u) << "no free extent: the lowest page of all";
}

TEST(PageAllocatorTest, AllPagesOfTheCapacityCanBeTaken) {
  // The last extent is cut by the capacity.
  constexpr uint32_t kPages = 7 * kExtentPages + 3;
  PageAllocator pages(kPages, 100 * kExtentPages, 20);
  std::set<uint32_t> taken;
  for (uint32_t i = 0; i < kPages; ++i) {
    EXPECT_TRUE(taken.insert(pages.TakeFor(i % 20)).second);
  }
  EXPECT_EQ(*taken.rbegin(), kPages - 1);
  EXPECT_DEATH(pages.TakeFor(0), "");
  EXPECT_DEATH(pages.Take(), "");
  EXPECT_DEATH(PageAllocator(16, 16, 1).TakeFor(1), "");
  pages.Grow(kPages + 1);
  EXPECT_EQ(pages.TakeFor(5), kPages);
}

TEST(PageAllocatorTest, GivingAPageTwiceOrOneBehindTheCapacityIsOurBug) {
  PageAllocator pages(20, 40, 1);
  const uint32_t page = pages.TakeFor(0);
  pages.Give(page);
  EXPECT_DEATH(pages.Give(page), "");
  EXPECT_DEATH(pages.Give(20), "");
  EXPECT_DEATH(pages.Grow(19), "");
  EXPECT_DEATH(pages.Grow(41), "");
}

TEST(PageAllocatorTest, AnEndKeepsPagesBelowIt) {
  PageAllocator pages(6 * kExtentPages, 6 * kExtentPages, 2);
  std::vector<uint32_t> taken;
  for (uint32_t i = 0; i < 5 * kExtentPages; ++i) {
    taken.push_back(pages.TakeFor(0));
  }
  // Its own hole is beyond the end, a whole extent below it is free.
  pages.Give(taken.back());
  for (uint32_t i = kExtentPages; i < 2 * kExtentPages; ++i) {
    pages.Give(taken[i]);
  }
  EXPECT_EQ(pages.TakeFor(0, 3 * kExtentPages), kExtentPages);
  EXPECT_EQ(pages.TakeFor(1, 3 * kExtentPages), kExtentPages + 1)
      << "no extent below the end: the lowest page";
  EXPECT_EQ(pages.TakeFor(1), 5 * kExtentPages);
}

// A full cache in which every owner gives one of its pages and takes one, for
// ever, in random order, with now and then one that grows at another's expense.
TEST(PageAllocatorTest, OwnersStayTogetherWhilePagesComeAndGo) {
  constexpr uint32_t kOwners = 30;
  constexpr uint32_t kEach = 64;
  constexpr uint32_t kPages = kOwners * kEach;
  PageAllocator pages(kPages, kPages, kOwners);
  std::vector<std::vector<uint32_t>> held(kOwners);
  std::set<uint32_t> taken;
  const auto take = [&](uint32_t owner) {
    held[owner].push_back(pages.TakeFor(owner));
    ASSERT_TRUE(taken.insert(held[owner].back()).second);
  };
  std::mt19937 rng(5);
  const auto give = [&](uint32_t owner) {
    std::vector<uint32_t>& mine = held[owner];
    std::swap(mine[rng() % mine.size()], mine.back());
    pages.Give(mine.back());
    taken.erase(mine.back());
    mine.pop_back();
  };
  for (uint32_t i = 0; i < kEach; ++i) {
    for (uint32_t owner = 0; owner < kOwners; ++owner) take(owner);
  }
  for (int round = 0; round < 2000; ++round) {
    for (uint32_t owner = 0; owner < kOwners; ++owner) give(owner);
    for (uint32_t owner = 0; owner < kOwners; ++owner) take(owner);
    ASSERT_EQ(pages.n_free(), 0u);
    if (round % 500 == 499) {
      give(round / 500);
      take(round / 500 + 10);
    }
  }
  for (const std::vector<uint32_t>& mine : held) {
    std::set<uint32_t> extents;
    for (uint32_t page : mine) extents.insert(page / kExtentPages);
    // 4 if nothing had moved; pages in random order lie in 50 of them.
    EXPECT_LE(extents.size(), 12u);
  }
}

}  // namespace
}  // namespace lkv
