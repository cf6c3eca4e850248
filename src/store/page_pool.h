// PagePool: a given number of equally sized pages in one reserved range of
// addresses, up to a size that it may grow to later.
//
// Memory is taken from the system when a page is first written and given back
// slab by slab, as soon as no page of a slab is in use. Take() prefers the
// lowest page, so that the upper slabs run empty. The range is contiguous, so a
// kernel finds page i at base() + i * page_bytes.
//
// A slab is 2 MiB and lies in one huge page of the system where that is
// possible: the pages of a lane are scattered, and from pages of 4 KiB decode
// attention is 10 % slower (2,048 tokens of SmolLM2). Small pools and a slab of
// which a part lies beyond the capacity do without, so the system never holds
// more than the capacity for a pool. A page whose size does not divide 2 MiB
// may lie in two slabs.
//
// Thread-compatible. Take and Give cost one bit operation plus a scan of one
// word per 4096 pages (64 words at 1 GiB); Give makes a system call when it
// empties a slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "lookaheadkv/status.h"

namespace lkv {

class PagePool {
 public:
  // Fewer bytes than this are not worth slabs of 2 MiB.
  static constexpr size_t kHugeFromBytes = size_t{16} << 20;

  // Reserves addresses, not memory. Requires page_bytes to be a multiple of
  // 64. kOutOfMemory when the pages would not fit this machine.
  static Result<PagePool> Create(size_t page_bytes, uint32_t capacity_pages);
  // Reserves the addresses of capacity_pages_max >= capacity_pages pages.
  static Result<PagePool> Create(size_t page_bytes, uint32_t capacity_pages,
                                 uint32_t capacity_pages_max);

  ~PagePool();
  PagePool(PagePool&& other) noexcept;
  PagePool& operator=(PagePool&&) = delete;

  // A free page with undefined contents. Requires n_free() > 0.
  PageId Take();
  // Requires a page that Take() returned and that was not given since.
  void Give(PageId id);

  // Allows more pages. Requires capacity() <= capacity_pages <=
  // capacity_max(). Allocates nothing; pages stay where they are.
  void Grow(uint32_t capacity_pages);

  const uint8_t* base() const { return base_; }
  uint8_t* PageData(PageId id) {
    return base_ + page_bytes_ * static_cast<uint32_t>(id);
  }
  size_t page_bytes() const { return page_bytes_; }
  uint32_t capacity() const { return capacity_; }
  uint32_t capacity_max() const { return capacity_max_; }
  uint32_t n_used() const { return n_used_; }
  uint32_t n_free() const { return capacity_ - n_used_; }
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
  PagePool(size_t page_bytes, uint32_t capacity_pages,
           uint32_t capacity_pages_max, uint64_t slab_bytes);
  Status Reserve();
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
  uint32_t capacity_;
  uint32_t capacity_max_;
  uint64_t slab_bytes_;
  uint32_t n_used_ = 0;
  uint32_t n_slabs_in_use_ = 0;
  std::vector<uint32_t> used_in_slab_;  // [n_slabs]
  // Bit p of free_[w]: page 64 w + p is free. Those behind the capacity are,
  // but the lowest free page never lies there.
  std::vector<uint64_t> free_;
  // Bit w % 64 of words_with_free_[w / 64]: free_[w] is not zero.
  std::vector<uint64_t> words_with_free_;
  // words_with_free_ is zero before this index.
  size_t lowest_ = 0;
};

}  // namespace lkv
