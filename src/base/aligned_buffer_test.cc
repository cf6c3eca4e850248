#include "base/aligned_buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "testing/deny_huge_pages.h"

namespace lkv {
namespace {

TEST(AlignedBufferTest, IsAlignedAndZeroAtAnySize) {
  for (size_t n : {size_t{1}, size_t{15}, size_t{16}, size_t{1000},
                   kHugePageBytes / 4, kHugePageBytes / 4 + 1}) {
    AlignedBuffer<float> buffer(n);
    EXPECT_EQ(buffer.size(), n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kBufferAlignment, 0u)
        << n;
    EXPECT_TRUE(std::all_of(buffer.span().begin(), buffer.span().end(),
                            [](float x) { return x == 0; }))
        << n;
  }
}

// A buffer that reuses freed memory must not show what was in it.
TEST(AlignedBufferTest, IsZeroInReusedMemory) {
  for (int round = 0; round < 100; ++round) {
    AlignedBuffer<uint8_t> buffer(4096);
    ASSERT_TRUE(std::all_of(buffer.span().begin(), buffer.span().end(),
                            [](uint8_t x) { return x == 0; }));
    std::fill(buffer.span().begin(), buffer.span().end(), uint8_t{0xff});
  }
}

// Bytes of a buffer that are in memory.
size_t ResidentBytesOf(AlignedBuffer<uint8_t>& buffer) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> is_resident(buffer.size() / page_bytes);
  EXPECT_EQ(mincore(buffer.data(), buffer.size(), is_resident.data()), 0);
  return page_bytes *
         static_cast<size_t>(std::count_if(
             is_resident.begin(), is_resident.end(),
             [](unsigned char flags) { return (flags & 1) != 0; }));
}

// Scratch is made for the longest text and mostly used for shorter ones.
TEST(AlignedBufferTest, ALargeOneTakesMemoryOnlyWhereItIsTouched) {
  AlignedBuffer<uint8_t> buffer(32 * kHugePageBytes);
  EXPECT_EQ(ResidentBytesOf(buffer), 0u);
  buffer[5 * kHugePageBytes] = 1;
  EXPECT_GT(ResidentBytesOf(buffer), 0u);
  EXPECT_LE(ResidentBytesOf(buffer), kHugePageBytes);
}

TEST(AlignedBufferTest, ASparseOneTakesSmallPages) {
  constexpr size_t kTouched = 16;
  AlignedBuffer<uint8_t> buffer(kTouched * kHugePageBytes, Access::kSparse);
  for (size_t i = 0; i < kTouched; ++i) buffer[i * kHugePageBytes] = 1;
  EXPECT_LT(ResidentBytesOf(buffer), kHugePageBytes);
}

TEST(AlignedBufferTest, EmptyHasNoMemory) {
  AlignedBuffer<float> buffer(0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size(), 0u);
}

TEST(AlignedBufferTest, MovedFromIsEmpty) {
  AlignedBuffer<int> a(8);
  a[3] = 7;
  AlignedBuffer<int> b = std::move(a);
  EXPECT_EQ(b.size(), 8u);
  EXPECT_EQ(b[3], 7);
  EXPECT_EQ(a.size(), 0u);  // NOLINT
  EXPECT_EQ(a.data(), nullptr);
  a = std::move(b);
  EXPECT_EQ(a[3], 7);
  EXPECT_EQ(b.size(), 0u);  // NOLINT
}

TEST(AlignedBufferDeathTest, RefusesSizeThatOverflows) {
  EXPECT_DEATH(AlignedBuffer<uint64_t>(SIZE_MAX / 4), "CHECK failed");
}

// Sanitizers end the process at such a size.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(AlignedBufferTest, RefusedMemoryIsAnExceptionThatNamesTheSize) {
  constexpr size_t kTooMuch = size_t{1} << 60;
  try {
    AlignedBuffer<uint8_t> buffer(kTooMuch);
    FAIL() << "got 2^60 bytes";
  } catch (const std::bad_alloc& refused) {
    const auto* failure = dynamic_cast<const AllocationFailure*>(&refused);
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->n_bytes(), kTooMuch);
  }
}
#endif

// True when the kernel has been advised to back this address with huge pages
// (flag "hg" of its mapping in /proc/self/smaps).
bool AdvisedHuge(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin, end;
    char colon;
    if (std::sscanf(line.c_str(), "%lx-%lx%c", &begin, &end, &colon) == 3) {
      inside = begin <= wanted && wanted < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line.find(" hg") != std::string::npos;
    }
  }
  return false;
}

TEST(AlignedBufferTest, LargeBufferAsksForHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) {
    GTEST_SKIP() << "this kernel has no transparent huge pages";
  }
  AlignedBuffer<uint8_t> large(4 * kHugePageBytes);
  EXPECT_TRUE(AdvisedHuge(large.data()));
  EXPECT_TRUE(AdvisedHuge(large.data() + large.size() - 1));
}

// In a child, because there is no way back.
TEST(AlignedBufferDeathTest, LargeBufferDoesWithoutHugePages) {
  const auto fill_without_huge_pages = [] {
    if (!DenyHugePages()) std::_Exit(2);
    AlignedBuffer<uint8_t> large(2 * kHugePageBytes);
    const bool is_zero = std::count(large.span().begin(), large.span().end(),
                                    0) == static_cast<long>(large.size());
    std::fill(large.span().begin(), large.span().end(), uint8_t{1});
    std::_Exit(is_zero && !AdvisedHuge(large.data()) ? 0 : 1);
  };
  EXPECT_EXIT(fill_without_huge_pages(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lkv
