#include "store/page_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "testing/deny_huge_pages.h"
#include "testing/resident_bytes.h"

namespace lkv {
namespace {

Result<PagePool> CreatePool(size_t page_bytes, uint32_t n_pages) {
  return PagePool::Create(
      {.page_bytes = page_bytes, .capacity_pages = n_pages});
}

uint32_t Index(PageId id) { return static_cast<uint32_t>(id); }

// Read calls of this process so far; the count includes those of this function.
uint64_t ReadCalls() {
  std::ifstream in("/proc/self/io");
  std::string key;
  uint64_t value = 0;
  while (in >> key >> value) {
    if (key == "syscr:") return value;
  }
  ADD_FAILURE() << "/proc/self/io names no read calls";
  return 0;
}

// The limits of the machine are a dozen files.
TEST(PagePoolTest, OnlyTheFirstOneReadsTheLimitsOfTheMachine) {
  EXPECT_TRUE(CreatePool(4096, 10).ok());
  const uint64_t first = ReadCalls();
  const uint64_t second = ReadCalls();
  ASSERT_GT(second, first) << "a look at the count is a read call itself";
  EXPECT_TRUE(CreatePool(4096, 10).ok());
  EXPECT_EQ(ReadCalls() - second, second - first);
}

TEST(PagePoolTest, TakesTheLowestFreePage) {
  PagePool pool = CreatePool(4096, 200).value();
  for (uint32_t i = 0; i < 200; ++i) EXPECT_EQ(Index(pool.Take()), i);
  EXPECT_EQ(pool.n_free(), 0u);
  for (uint32_t page : {150, 3, 70}) pool.Give(PageId{page});
  EXPECT_EQ(Index(pool.Take()), 3u);
  EXPECT_EQ(Index(pool.Take()), 70u);
  EXPECT_EQ(Index(pool.Take()), 150u);
}

TEST(PagePoolTest, PayloadsOfPagesInUseNeverMix) {
  constexpr uint32_t kPages = 300;
  constexpr size_t kBytes = 5120;
  PagePool pool = CreatePool(kBytes, kPages).value();
  std::mt19937 rng(7);
  std::vector<std::pair<PageId, uint8_t>> held;
  std::set<uint32_t> ids;
  for (int round = 0; round < 5000; ++round) {
    if (pool.n_free() > 0 && (held.empty() || rng() % 100 < 52)) {
      const PageId id = pool.Take();
      ASSERT_TRUE(ids.insert(Index(id)).second);
      const uint8_t fill = static_cast<uint8_t>(rng());
      std::memset(pool.PageData(id), fill, kBytes);
      held.emplace_back(id, fill);
    } else {
      const size_t i = rng() % held.size();
      const auto [id, fill] = held[i];
      const uint8_t* data = pool.PageData(id);
      for (size_t b = 0; b < kBytes; b += 511) ASSERT_EQ(data[b], fill);
      pool.Give(id);
      ids.erase(Index(id));
      held[i] = held.back();
      held.pop_back();
    }
    ASSERT_EQ(pool.n_used(), held.size());
    std::set<uint32_t> slabs;
    for (uint32_t page : ids) {
      slabs.insert(page * kBytes / (256 << 10));
      slabs.insert((page * kBytes + kBytes - 1) / (256 << 10));
    }
    ASSERT_EQ(pool.n_slabs_in_use(), slabs.size());
  }
}

TEST(PagePoolTest, ReservingTakesNoMemoryAndEmptySlabsGoBackToTheSystem) {
  constexpr size_t kMiB = 1 << 20;
  constexpr uint32_t kPages = 64 * kMiB / 4096;
  constexpr uint32_t kSlabPages = 512;
  const size_t before = ResidentBytes();
  PagePool pool = CreatePool(4096, kPages).value();
  EXPECT_LT(ResidentBytes(), before + kMiB);
  for (uint32_t i = 0; i < kPages; ++i) {
    std::memset(pool.PageData(pool.Take()), 1, 4096);
  }
  const size_t full = ResidentBytes();
  EXPECT_GT(full, before + 63 * kMiB);
  // One page per slab stays: nothing may be given back.
  for (uint32_t i = 0; i < kPages; ++i) {
    if (i % kSlabPages != 5) pool.Give(PageId{i});
  }
  EXPECT_GT(ResidentBytes() + kMiB, full);
  EXPECT_EQ(*pool.PageData(PageId{5}), 1);
  // The upper half of them goes.
  for (uint32_t i = kPages / 2 + 5; i < kPages; i += kSlabPages) {
    pool.Give(PageId{i});
  }
  EXPECT_LT(ResidentBytes(), full - 31 * kMiB);
  EXPECT_EQ(pool.n_slabs_in_use(), kPages / 2 / kSlabPages);
}

TEST(PagePoolTest, DestructionGivesEverythingBack) {
  constexpr size_t kMiB = 1 << 20;
  const size_t before = ResidentBytes();
  {
    PagePool pool = CreatePool(4096, 16 * kMiB / 4096).value();
    while (pool.n_free() > 0) std::memset(pool.PageData(pool.Take()), 1, 4096);
    PagePool moved = std::move(pool);
    EXPECT_GT(ResidentBytes(), before + 15 * kMiB);
  }
  EXPECT_LT(ResidentBytes(), before + kMiB);
}

// Scattered pages would cost 2 MiB each if the system backed a slab that the
// capacity does not fill with a huge page.
TEST(PagePoolTest, SystemNeverHoldsMoreThanTheCapacity) {
  // The pool's own arrays and the test's. AddressSanitizer also keeps what the
  // reading of the machine's limits has freed.
#if defined(__SANITIZE_ADDRESS__)
  constexpr size_t kOwnBytes = 512 << 10;
#else
  constexpr size_t kOwnBytes = 128 << 10;
#endif
  for (uint32_t n_pages : {200u, 16 * 256u, 16 * 256u + 10}) {
    const size_t before = ResidentBytes();
    PagePool pool = CreatePool(4096, n_pages).value();
    while (pool.n_free() > 0) std::memset(pool.PageData(pool.Take()), 1, 4096);
    EXPECT_LT(ResidentBytes(), before + n_pages * 4096 + kOwnBytes);
  }
}

TEST(PagePoolTest, LargePoolsUseSlabsOfOneHugePage) {
  const auto pages_per_slab = [](size_t page_bytes, uint32_t n_pages) {
    return CreatePool(page_bytes, n_pages).value().PagesIn(1);
  };
  EXPECT_EQ(pages_per_slab(4096, 4096), 512u);
  EXPECT_EQ(pages_per_slab(8192, 4096), 256u);
  EXPECT_EQ(pages_per_slab(2112, 40960), 992u);  // and 63/64 of one more
  EXPECT_EQ(pages_per_slab(4096, 4095), 64u);
}

// A page of int8 is 33 cache lines: the 993rd begins in the first slab of 2 MiB
// and ends in the second.
TEST(PagePoolTest, APageInTwoSlabsKeepsBoth) {
  constexpr size_t kBytes = 2112;
  PagePool pool = CreatePool(kBytes, 20000).value();
  EXPECT_EQ(pool.SlabsOf(992), 1u);
  EXPECT_EQ(pool.SlabsOf(993), 2u);
  EXPECT_EQ(pool.PagesIn(2), 1985u);
  for (uint32_t i = 0; i < 20000; ++i) {
    std::memset(pool.PageData(pool.Take()), static_cast<int>(i), kBytes);
  }
  EXPECT_EQ(pool.n_slabs_in_use(), pool.SlabsOf(20000));
  for (uint32_t i = 0; i < 20000; ++i) {
    if (i != 992) pool.Give(PageId{i});
  }
  EXPECT_EQ(pool.n_slabs_in_use(), 2u);
  for (size_t b = 0; b < kBytes; ++b) {
    ASSERT_EQ(pool.PageData(PageId{992})[b], 992 % 256);
  }
  pool.Give(PageId{992});
  EXPECT_EQ(pool.n_slabs_in_use(), 0u);
}

TEST(PagePoolTest, MoreThanTheMachineHasIsRefused) {
  Result<PagePool> pool = CreatePool(1 << 20, 0xffffffffu);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), StatusCode::kOutOfMemory);
}

TEST(PagePoolDeathTest, GivingAPageTwiceIsOurBug) {
  PagePool pool = CreatePool(4096, 4).value();
  const PageId id = pool.Take();
  pool.Give(id);
  EXPECT_DEATH(pool.Give(id), "CHECK failed");
}

TEST(PagePoolTest, GrowsInPlaceAndHandsOutNoPageBeyondItsCapacity) {
  constexpr uint32_t kSmall = 70;
  constexpr uint32_t kLarge = 5000;
  PagePool pool = PagePool::Create({.page_bytes = 4096,
                                    .capacity_pages = kSmall,
                                    .capacity_pages_max = kLarge})
                      .value();
  EXPECT_EQ(pool.capacity(), kSmall);
  EXPECT_EQ(pool.capacity_max(), kLarge);
  for (uint32_t i = 0; i < kSmall; ++i) {
    std::memset(pool.PageData(pool.Take()), static_cast<int>(i), 4096);
  }
  EXPECT_EQ(pool.n_free(), 0u);
  EXPECT_DEATH(pool.Take(), "");
  pool.Give(PageId{5});
  pool.Give(PageId{69});

  const uint8_t* base = pool.base();
  pool.Grow(100);
  pool.Grow(kLarge);
  EXPECT_EQ(pool.base(), base);
  EXPECT_EQ(pool.n_free(), kLarge - kSmall + 2);
  for (uint32_t i = 0; i < kSmall; ++i) {
    if (i == 5 || i == 69) continue;
    EXPECT_EQ(pool.PageData(PageId{i})[4095], i);
  }
  EXPECT_EQ(Index(pool.Take()), 5u);
  for (uint32_t i = kSmall - 1; i < kLarge; ++i) {
    ASSERT_EQ(Index(pool.Take()), i);
  }
  EXPECT_DEATH(pool.Grow(kLarge + 1), "");
  EXPECT_DEATH(pool.Grow(kLarge - 1), "");
}

// In a child, because there is no way back.
TEST(PagePoolDeathTest, DoesWithoutHugePages) {
  const auto use_without_huge_pages = [] {
    if (!DenyHugePages()) std::_Exit(2);
    const uint32_t n_pages = 2 * PagePool::kHugeFromBytes / 4096;
    Result<PagePool> pool = PagePool::Create({.page_bytes = 4096,
                                              .capacity_pages = n_pages / 2,
                                              .capacity_pages_max = n_pages});
    if (!pool.ok()) std::_Exit(3);
    pool->Grow(n_pages);
    std::vector<PageId> pages;
    while (pool->n_free() > 0) {
      pages.push_back(pool->Take());
      std::memset(pool->PageData(pages.back()), 1, 4096);
    }
    for (PageId page : pages) pool->Give(page);
    std::_Exit(pool->n_slabs_in_use() == 0 ? 0 : 1);
  };
  EXPECT_EXIT(use_without_huge_pages(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lkv
