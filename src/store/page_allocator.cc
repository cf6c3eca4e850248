#include "store/page_allocator.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/types.h"

namespace lkv {

PageAllocator::PageAllocator(uint32_t capacity, uint32_t capacity_max,
                             uint32_t n_owners)
    : capacity_(capacity),
      capacity_max_(capacity_max),
      free_(CeilDiv(capacity_max, 64), ~uint64_t{0}),
      words_with_free_(CeilDiv(free_.size(), 64)),
      extents_(CeilDiv(capacity_max, kExtentPages)),
      first_extent_(n_owners, kNone) {
  CHECK(capacity <= capacity_max);
  static_assert(64 % kExtentPages == 0);
  if (capacity_max % 64 != 0) {
    free_.back() = (uint64_t{1} << capacity_max % 64) - 1;
  }
  for (size_t word = 0; word < free_.size(); ++word) {
    words_with_free_[word / 64] |= uint64_t{1} << word % 64;
  }
}

void PageAllocator::Grow(uint32_t capacity) {
  CHECK(capacity_ <= capacity && capacity <= capacity_max_);
  capacity_ = capacity;
}

uint32_t PageAllocator::Take() {
  CHECK(n_used_ < capacity_);
  while (words_with_free_[lowest_] == 0) ++lowest_;
  const size_t word =
      lowest_ * 64 + std::countr_zero(words_with_free_[lowest_]);
  const uint32_t page = static_cast<uint32_t>(word * 64) +
                        static_cast<uint32_t>(std::countr_zero(free_[word]));
  MarkTaken(page);
  return page;
}

uint32_t PageAllocator::TakeFor(uint32_t owner, uint32_t end) {
  CHECK(n_used_ < capacity_);
  CHECK(owner < first_extent_.size());
  const auto is_below = [&](uint32_t extent) {
    return extent != kNone && (extent + 1) * kExtentPages <= end;
  };
  if (!is_below(first_extent_[owner])) {
    const uint32_t extent = FindFreeExtent();
    if (!is_below(extent)) return Take();
    extents_[extent].owner = owner;
    Link(extent);
  }
  const uint32_t extent = first_extent_[owner];
  const uint32_t page =
      extent * kExtentPages +
      static_cast<uint32_t>(std::countr_zero(FreePagesOf(extent)));
  MarkTaken(page);
  return page;
}

void PageAllocator::Give(uint32_t page) {
  CHECK(page < capacity_);
  const size_t word = page / 64;
  const uint64_t bit = uint64_t{1} << page % 64;
  CHECK((free_[word] & bit) == 0);
  const uint32_t extent = page / kExtentPages;
  const bool was_full = FreePagesOf(extent) == 0;
  free_[word] |= bit;
  words_with_free_[word / 64] |= uint64_t{1} << word % 64;
  lowest_ = std::min(lowest_, word / 64);
  --n_used_;
  const bool is_owned = extents_[extent].owner != kNone;
  if (was_full && is_owned) Link(extent);
  if (FreePagesOf(extent) == kAllFree) {
    if (is_owned) Unlink(extent);
    extents_[extent].owner = kNone;
    lowest_extent_ = std::min(lowest_extent_, extent);
  }
}

uint32_t PageAllocator::FreePagesOf(uint32_t extent) const {
  const uint32_t first = extent * kExtentPages;
  return static_cast<uint32_t>(free_[first / 64] >> first % 64) & kAllFree;
}

uint32_t PageAllocator::FindFreeExtent() {
  const uint32_t n_whole = capacity_ / kExtentPages;
  while (lowest_extent_ < n_whole && FreePagesOf(lowest_extent_) != kAllFree) {
    ++lowest_extent_;
  }
  return lowest_extent_ < n_whole ? lowest_extent_ : kNone;
}

void PageAllocator::MarkTaken(uint32_t page) {
  const size_t word = page / 64;
  free_[word] &= ~(uint64_t{1} << page % 64);
  if (free_[word] == 0) {
    words_with_free_[word / 64] &= ~(uint64_t{1} << word % 64);
  }
  ++n_used_;
  const uint32_t extent = page / kExtentPages;
  if (extents_[extent].owner != kNone && FreePagesOf(extent) == 0) {
    Unlink(extent);
  }
}

void PageAllocator::Link(uint32_t extent) {
  uint32_t& first = first_extent_[extents_[extent].owner];
  extents_[extent].next = first;
  extents_[extent].previous = kNone;
  if (first != kNone) extents_[first].previous = extent;
  first = extent;
}

void PageAllocator::Unlink(uint32_t extent) {
  const Extent& e = extents_[extent];
  if (e.previous == kNone) {
    first_extent_[e.owner] = e.next;
  } else {
    extents_[e.previous].next = e.next;
  }
  if (e.next != kNone) extents_[e.next].previous = e.previous;
}

}  // namespace lkv
