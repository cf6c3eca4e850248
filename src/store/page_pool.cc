#include "store/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/machine.h"

namespace lkv {
namespace {

// A whole number of system pages, of 4 to 64 KiB.
constexpr uint64_t kSmallSlabBytes = uint64_t{256} << 10;

// Read once: it does not change, and a dozen files for each sequence took
// longer than all else in Create.
uint64_t MachineBytes() {
  static const uint64_t n_bytes = TotalMemoryBytes();
  return n_bytes;
}

}  // namespace

Result<PagePool> PagePool::Create(size_t page_bytes, uint32_t capacity_pages) {
  return Create(page_bytes, capacity_pages, capacity_pages);
}

Result<PagePool> PagePool::Create(size_t page_bytes, uint32_t capacity_pages,
                                  uint32_t capacity_pages_max) {
  CHECK(page_bytes > 0 && page_bytes % 64 == 0 && capacity_pages > 0);
  CHECK(capacity_pages <= capacity_pages_max);
  const uint64_t machine_bytes = MachineBytes();
  if (page_bytes > machine_bytes / capacity_pages_max) {
    return OutOfMemory(
        "page pool: " + std::to_string(capacity_pages_max) + " pages of " +
        std::to_string(page_bytes) + " bytes exceed the " +
        std::to_string(machine_bytes) +
        " bytes that this machine, its container and its limits allow; use a "
        "smaller budget or a shorter context");
  }
  const bool huge = page_bytes * capacity_pages_max >= kHugeFromBytes;
  PagePool pool(page_bytes, capacity_pages, capacity_pages_max,
                huge ? kHugePageBytes : kSmallSlabBytes);
  if (Status s = pool.Reserve(); !s.ok()) return s;
  return pool;
}

PagePool::PagePool(size_t page_bytes, uint32_t capacity_pages,
                   uint32_t capacity_pages_max, uint64_t slab_bytes)
    : page_bytes_(page_bytes),
      capacity_(capacity_pages),
      capacity_max_(capacity_pages_max),
      slab_bytes_(slab_bytes),
      used_in_slab_(SlabsOf(capacity_pages_max)),
      free_(CeilDiv(capacity_pages_max, 64), ~uint64_t{0}),
      words_with_free_(CeilDiv(free_.size(), 64)) {
  if (capacity_pages_max % 64 != 0) {
    free_.back() = (uint64_t{1} << capacity_pages_max % 64) - 1;
  }
  for (size_t word = 0; word < free_.size(); ++word) {
    words_with_free_[word / 64] |= uint64_t{1} << word % 64;
  }
}

Status PagePool::Reserve() {
  // One huge page more, so that the first slab can begin at a border.
  reserved_bytes_ = used_in_slab_.size() * slab_bytes_ + kHugePageBytes;
  void* reserved = mmap(nullptr, reserved_bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    return OutOfMemory("page pool: " + std::to_string(reserved_bytes_) +
                       " bytes of addresses refused by the system; use a "
                       "smaller budget or raise the limit of this process "
                       "(ulimit -v)");
  }
  reserved_ = reserved;
  const uintptr_t address = reinterpret_cast<uintptr_t>(reserved);
  base_ = reinterpret_cast<uint8_t*>(CeilDiv(address, kHugePageBytes) *
                                     kHugePageBytes);
  // Advice: a kernel without huge pages refuses it, and all works without.
  static_cast<void>(madvise(reserved_, reserved_bytes_, MADV_NOHUGEPAGE));
  AdviseHugePages();
  return {};
}

// For the slabs that lie wholly within the capacity.
void PagePool::AdviseHugePages() {
  if (slab_bytes_ != kHugePageBytes) return;
  const uint64_t n_whole = uint64_t{capacity_} * page_bytes_ / slab_bytes_;
  static_cast<void>(madvise(base_, n_whole * slab_bytes_, MADV_HUGEPAGE));
}

void PagePool::Grow(uint32_t capacity_pages) {
  CHECK(capacity_ <= capacity_pages && capacity_pages <= capacity_max_);
  capacity_ = capacity_pages;
  AdviseHugePages();
}

PagePool::PagePool(PagePool&& other) noexcept
    : base_(other.base_),
      reserved_(std::exchange(other.reserved_, nullptr)),
      reserved_bytes_(other.reserved_bytes_),
      page_bytes_(other.page_bytes_),
      capacity_(other.capacity_),
      capacity_max_(other.capacity_max_),
      slab_bytes_(other.slab_bytes_),
      n_used_(other.n_used_),
      n_slabs_in_use_(other.n_slabs_in_use_),
      used_in_slab_(std::move(other.used_in_slab_)),
      free_(std::move(other.free_)),
      words_with_free_(std::move(other.words_with_free_)),
      lowest_(other.lowest_) {}

PagePool::~PagePool() {
  if (reserved_ != nullptr) CHECK(munmap(reserved_, reserved_bytes_) == 0);
}

PagePool::SlabRange PagePool::SlabsOfPage(uint32_t page) const {
  const uint64_t begin = uint64_t{page} * page_bytes_;
  return {static_cast<uint32_t>(begin / slab_bytes_),
          static_cast<uint32_t>((begin + page_bytes_ - 1) / slab_bytes_)};
}

PageId PagePool::Take() {
  CHECK(n_used_ < capacity_);
  while (words_with_free_[lowest_] == 0) ++lowest_;
  const size_t word =
      lowest_ * 64 + std::countr_zero(words_with_free_[lowest_]);
  const uint32_t page = static_cast<uint32_t>(word * 64) +
                        static_cast<uint32_t>(std::countr_zero(free_[word]));
  free_[word] &= free_[word] - 1;
  if (free_[word] == 0) {
    words_with_free_[lowest_] &= ~(uint64_t{1} << word % 64);
  }
  ++n_used_;
  const auto [first, last] = SlabsOfPage(page);
  for (uint32_t slab = first; slab <= last; ++slab) {
    if (used_in_slab_[slab]++ == 0) ++n_slabs_in_use_;
  }
  return PageId{page};
}

void PagePool::Give(PageId id) {
  const uint32_t page = static_cast<uint32_t>(id);
  CHECK(page < capacity_);
  const size_t word = page / 64;
  const uint64_t bit = uint64_t{1} << page % 64;
  CHECK((free_[word] & bit) == 0);
  free_[word] |= bit;
  words_with_free_[word / 64] |= uint64_t{1} << word % 64;
  lowest_ = std::min(lowest_, word / 64);
  --n_used_;
  const auto [first, last] = SlabsOfPage(page);
  for (uint32_t slab = first; slab <= last; ++slab) {
    if (--used_in_slab_[slab] > 0) continue;
    --n_slabs_in_use_;
    CHECK(madvise(base_ + slab * slab_bytes_, slab_bytes_, MADV_DONTNEED) == 0);
  }
}

}  // namespace lkv
