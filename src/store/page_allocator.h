// PageAllocator: which of a range of page numbers are free. Pages of one owner
// (a lane) are kept together.
//
// TakeFor() gives an owner pages out of its own extents: runs of kExtentPages
// pages next to each other, of which it takes a new one when the old ones are
// full. What it gives back it gets again, unless others had nowhere else to go;
// so a lane in which pages leave and arrive for thousands of steps stays where
// it is. Attention then streams memory instead of hopping through it: 0.88 of a
// plain read, against 0.58 from pages in random order (one thread, f16, head
// size 64, AMD Zen 4; `lkv bench kernels --filter decode/f16` has rows for
// both). It is a wish, not a reservation: without a free extent an owner gets
// the lowest free page, whoever's extent it lies in, so all pages of the
// capacity can be used.
//
// Thread-compatible. Take, TakeFor and Give cost a few bit operations plus a
// scan of one word per 4096 pages (Take) or per extent (the first one that is
// free; from where the last scan ended). Allocates at construction only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lkv {

class PageAllocator {
 public:
  static constexpr uint32_t kExtentPages = 16;

  // Pages [0, capacity); may Grow to capacity_max >= capacity. Owners are [0,
  // n_owners).
  PageAllocator(uint32_t capacity, uint32_t capacity_max, uint32_t n_owners);

  // The lowest free page. Requires n_free() > 0.
  uint32_t Take();
  // The lowest free page of one of the owner's extents, of a new one, or of
  // all. Extents that reach beyond page `end` do not count. Requires
  // n_free() > 0.
  uint32_t TakeFor(uint32_t owner, uint32_t end = UINT32_MAX);
  // Requires a page that was taken and not given since.
  void Give(uint32_t page);
  // Requires capacity() <= capacity <= capacity_max().
  void Grow(uint32_t capacity);

  uint32_t capacity() const { return capacity_; }
  uint32_t capacity_max() const { return capacity_max_; }
  uint32_t n_used() const { return n_used_; }
  uint32_t n_free() const { return capacity_ - n_used_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kAllFree = (1u << kExtentPages) - 1;

  // Extents of an owner that have a free page form a list, so that it finds one
  // at once. An extent loses its owner when all its pages are free.
  struct Extent {
    uint32_t owner = kNone;
    uint32_t next = kNone;
    uint32_t previous = kNone;
  };

  // Bit p: page p of the extent is free.
  uint32_t FreePagesOf(uint32_t extent) const;
  // The lowest extent that lies within the capacity and is wholly free, or
  // kNone.
  uint32_t FindFreeExtent();
  void MarkTaken(uint32_t page);
  void Link(uint32_t extent);
  void Unlink(uint32_t extent);

  uint32_t capacity_;
  uint32_t capacity_max_;
  uint32_t n_used_ = 0;
  // Bit p of free_[w]: page 64 w + p is free. Those behind the capacity are,
  // but the lowest free page never lies there.
  std::vector<uint64_t> free_;
  // Bit w % 64 of words_with_free_[w / 64]: free_[w] is not zero.
  std::vector<uint64_t> words_with_free_;
  size_t lowest_ = 0;  // words_with_free_ is zero before this index
  std::vector<Extent> extents_;
  std::vector<uint32_t> first_extent_;  // [n_owners] head of its list
  uint32_t lowest_extent_ = 0;          // none before it is wholly free
};

}  // namespace lkv
