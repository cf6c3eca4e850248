// PagePool: a given number of equally sized pages in one reserved range of
// addresses, up to a size that it may grow to later.
//
// Memory is taken from the system when a page is first written and given back
// slab by slab, as soon as no page of a slab is in use. Low pages are taken
// first, low extents where owners have some, so that the upper slabs run empty.
// Which page is next, and which pages are near each other, is PageAllocator's.
//
// A page may have several holders, who then only read it; it is free when the
// last one has given it.
//
// A slab is 2 MiB and lies in one huge page of the system where that is
// possible: from pages of 4 KiB decode attention is 10 % slower (2,048 tokens
// of SmolLM2). Small pools and a slab of which a part lies beyond the capacity
// do without, so the system never holds more than the capacity for a pool. A
// page whose size does not divide 2 MiB may lie in two slabs.
//
// Thread-compatible. Take, TakeFor and Give cost what PageAllocator says; Give
// makes a system call when it empties a slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/types.h"
#include "lookaheadkv/status.h"
#include "store/page_allocator.h"

namespace lkv {

class PagePool {
 public:
  // Fewer bytes than this are not worth slabs of 2 MiB.
  static constexpr size_t kHugeFromBytes = size_t{16} << 20;

  struct Options {
    size_t page_bytes = 0;  // multiple of 64
    uint32_t capacity_pages = 0;
    uint32_t capacity_pages_max = 0;  // 0: capacity_pages, else not less
    uint32_t n_owners = 0;            // for TakeFor
  };

  // Reserves the addresses of capacity_pages_max pages, not memory.
  // kOutOfMemory when the pages would not fit this machine.
  static Result<PagePool> Create(Options options);

  ~PagePool();
  PagePool(PagePool&& other) noexcept;
  PagePool& operator=(PagePool&&) = delete;

  // Bytes of bookkeeping per page that was ever used: its holder count.
  static constexpr size_t kBytesPerPage = sizeof(uint32_t);

  // The lowest free page, contents undefined, with one holder. Requires
  // n_free() > 0.
  uint8_t* Take() { return Use(allocator_.Take()); }
  // One near the other pages of an owner, below page `end` if there is one
  // there. Requires n_free() > 0.
  uint8_t* TakeFor(uint32_t owner, uint32_t end = UINT32_MAX) {
    return Use(allocator_.TakeFor(owner, end));
  }
  // One holder more. Requires a page in use.
  void Share(const uint8_t* page);
  // One holder less. Requires a page in use.
  void Give(const uint8_t* page);
  bool IsShared(const uint8_t* page) const {
    return holders_[IndexOf(page)] > 1;
  }

  // Allows more pages. Requires capacity() <= capacity_pages <=
  // capacity_max(). Allocates nothing; pages stay where they are.
  void Grow(uint32_t capacity_pages);

  // Whether it is one of this pool's pages.
  bool Contains(const uint8_t* page) const {
    return page >= base_ && page < base_ + page_bytes_ * capacity_max();
  }
  uint8_t* PageAt(uint32_t index) const { return base_ + page_bytes_ * index; }
  size_t page_bytes() const { return page_bytes_; }
  uint32_t capacity() const { return allocator_.capacity(); }
  uint32_t capacity_max() const { return allocator_.capacity_max(); }
  uint32_t n_used() const { return allocator_.n_used(); }
  uint32_t n_free() const { return allocator_.n_free(); }
  // Slabs that the first n_pages pages lie in.
  uint32_t SlabsOf(uint32_t n_pages) const {
    return static_cast<uint32_t>(
        CeilDiv(uint64_t{n_pages} * page_bytes_, slab_bytes_));
  }
  // Pages that lie wholly in the first n_slabs slabs.
  uint32_t PagesIn(uint32_t n_slabs) const {
    return static_cast<uint32_t>(n_slabs * slab_bytes_ / page_bytes_);
  }
  // Slabs with at least one used page: what the system sees of the pool.
  uint32_t n_slabs_in_use() const { return n_slabs_in_use_; }

 private:
  PagePool(const Options& options, uint64_t slab_bytes);
  Status Reserve();
  uint32_t IndexOf(const uint8_t* page) const;
  // Counts a page that was taken.
  uint8_t* Use(uint32_t page);
  void AdviseHugePages();
  // The slabs [first, last] that a page lies in, one or two.
  struct SlabRange {
    uint32_t first;
    uint32_t last;
  };
  SlabRange SlabsOfPage(uint32_t page) const;

  uint8_t* base_ = nullptr;
  void* reserved_ = nullptr;
  size_t reserved_bytes_ = 0;
  size_t page_bytes_;
  uint64_t slab_bytes_;
  PageAllocator allocator_;
  uint32_t n_slabs_in_use_ = 0;
  std::vector<uint32_t> used_in_slab_;  // [n_slabs]
  AlignedBuffer<uint32_t> holders_;     // [capacity_max]
};

}  // namespace lkv
