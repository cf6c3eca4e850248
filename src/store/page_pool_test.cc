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

// Gives the page of that index.
void Give(PagePool& pool, uint32_t index) { pool.Give(pool.PageAt(index)); }

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
  for (uint32_t i = 0; i < 200; ++i) EXPECT_EQ(pool.Take(), pool.PageAt(i));
  EXPECT_EQ(pool.n_free(), 0u);
  for (uint32_t page : {150, 3, 70}) Give(pool, page);
  EXPECT_EQ(pool.Take(), pool.PageAt(3));
  EXPECT_EQ(pool.Take(), pool.PageAt(70));
  EXPECT_EQ(pool.Take(), pool.PageAt(150));
}

TEST(PagePoolTest, PayloadsOfPagesInUseNeverMix) {
  constexpr uint32_t kPages = 300;
  constexpr size_t kBytes = 5120;
  PagePool pool = CreatePool(kBytes, kPages).value();
  std::mt19937 rng(7);
  std::vector<std::pair<uint8_t*, uint8_t>> held;
  std::set<uint8_t*> pages;
  for (int round = 0; round < 5000; ++round) {
    if (pool.n_free() > 0 && (held.empty() || rng() % 100 < 52)) {
      uint8_t* const page = pool.Take();
      ASSERT_TRUE(pages.insert(page).second);
      const uint8_t fill = static_cast<uint8_t>(rng());
      std::memset(page, fill, kBytes);
      held.emplace_back(page, fill);
    } else {
      const size_t i = rng() % held.size();
      const auto [page, fill] = held[i];
      for (size_t b = 0; b < kBytes; b += 511) ASSERT_EQ(page[b], fill);
      pool.Give(page);
      pages.erase(page);
      held[i] = held.back();
      held.pop_back();
    }
    ASSERT_EQ(pool.n_used(), held.size());
    std::set<uint32_t> slabs;
    for (const uint8_t* page : pages) {
      const size_t begin = static_cast<size_t>(page - pool.PageAt(0));
      slabs.insert(static_cast<uint32_t>(begin / (256 << 10)));
      slabs.insert(static_cast<uint32_t>((begin + kBytes - 1) / (256 << 10)));
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
    std::memset(pool.Take(), 1, 4096);
  }
  const size_t full = ResidentBytes();
  EXPECT_GT(full, before + 63 * kMiB);
  // One page per slab stays: nothing may be given back.
  for (uint32_t i = 0; i < kPages; ++i) {
    if (i % kSlabPages != 5) Give(pool, i);
  }
  EXPECT_GT(ResidentBytes() + kMiB, full);
  EXPECT_EQ(*pool.PageAt(5), 1);
  // The upper half of them goes.
  for (uint32_t i = kPages / 2 + 5; i < kPages; i += kSlabPages) {
    Give(pool, i);
  }
  EXPECT_LT(ResidentBytes(), full - 31 * kMiB);
  EXPECT_EQ(pool.n_slabs_in_use(), kPages / 2 / kSlabPages);
}

TEST(PagePoolTest, DestructionGivesEverythingBack) {
  constexpr size_t kMiB = 1 << 20;
  const size_t before = ResidentBytes();
  {
    PagePool pool = CreatePool(4096, 16 * kMiB / 4096).value();
    while (pool.n_free() > 0) std::memset(pool.Take(), 1, 4096);
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
    while (pool.n_free() > 0) std::memset(pool.Take(), 1, 4096);
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
    std::memset(pool.Take(), static_cast<int>(i), kBytes);
  }
  EXPECT_EQ(pool.n_slabs_in_use(), pool.SlabsOf(20000));
  for (uint32_t i = 0; i < 20000; ++i) {
    if (i != 992) Give(pool, i);
  }
  EXPECT_EQ(pool.n_slabs_in_use(), 2u);
  for (size_t b = 0; b < kBytes; ++b) {
    ASSERT_EQ(pool.PageAt(992)[b], 992 % 256);
  }
  Give(pool, 992);
  EXPECT_EQ(pool.n_slabs_in_use(), 0u);
}

TEST(PagePoolTest, MoreThanTheMachineHasIsRefused) {
  Result<PagePool> pool = CreatePool(1 << 20, 0xffffffffu);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), StatusCode::kOutOfMemory);
}

TEST(PagePoolTest, ASharedPageIsFreeWhenItsLastHolderGivesIt) {
  PagePool pool = CreatePool(4096, 2).value();
  uint8_t* const page = pool.Take();
  EXPECT_FALSE(pool.IsShared(page));
  pool.Share(page);
  pool.Share(page);
  *page = 7;
  pool.Give(page);
  EXPECT_TRUE(pool.IsShared(page));
  pool.Give(page);
  EXPECT_FALSE(pool.IsShared(page));
  EXPECT_EQ(pool.n_used(), 1u);
  EXPECT_EQ(*page, 7);
  pool.Give(page);
  EXPECT_EQ(pool.n_used(), 0u);
  EXPECT_EQ(pool.Take(), page);
  EXPECT_FALSE(pool.IsShared(page));
}

TEST(PagePoolTest, KnowsItsOwnPages) {
  const PagePool pool = CreatePool(4096, 3).value();
  const PagePool other = CreatePool(4096, 3).value();
  EXPECT_TRUE(pool.Contains(pool.PageAt(0)));
  EXPECT_TRUE(pool.Contains(pool.PageAt(2)));
  EXPECT_FALSE(pool.Contains(pool.PageAt(3)));
  EXPECT_FALSE(pool.Contains(other.PageAt(0)));
}

TEST(PagePoolDeathTest, APageThatIsNotInUseCannotBeShared) {
  PagePool pool = CreatePool(4096, 3).value();
  EXPECT_DEATH(pool.Share(pool.PageAt(0)), "CHECK failed");
}

TEST(PagePoolDeathTest, GivingAPageTwiceIsOurBug) {
  PagePool pool = CreatePool(4096, 4).value();
  const uint8_t* page = pool.Take();
  pool.Give(page);
  EXPECT_DEATH(pool.Give(page), "CHECK failed");
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
    std::memset(pool.Take(), static_cast<int>(i), 4096);
  }
  EXPECT_EQ(pool.n_free(), 0u);
  EXPECT_DEATH(pool.Take(), "");
  Give(pool, 5);
  Give(pool, 69);

  const uint8_t* base = pool.PageAt(0);
  pool.Grow(100);
  pool.Grow(kLarge);
  EXPECT_EQ(pool.PageAt(0), base);
  EXPECT_EQ(pool.n_free(), kLarge - kSmall + 2);
  for (uint32_t i = 0; i < kSmall; ++i) {
    if (i == 5 || i == 69) continue;
    EXPECT_EQ(pool.PageAt(i)[4095], i);
  }
  EXPECT_EQ(pool.Take(), pool.PageAt(5));
  for (uint32_t i = kSmall - 1; i < kLarge; ++i) {
    ASSERT_EQ(pool.Take(), pool.PageAt(i));
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
    std::vector<uint8_t*> pages;
    while (pool->n_free() > 0) {
      pages.push_back(pool->Take());
      std::memset(pages.back(), 1, 4096);
    }
    for (const uint8_t* page : pages) pool->Give(page);
    std::_Exit(pool->n_slabs_in_use() == 0 ? 0 : 1);
  };
  EXPECT_EXIT(use_without_huge_pages(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lkv
