// PagePool: a fixed number of equally sized pages in one reserved range of
// addresses.
//
// Memory is taken from the system when a page is first written and given back
// slab by slab: 64 pages (256 KiB at head_dim 64), released as soon as none of
// them is in use. Take() prefers the lowest page, so that the upper slabs run
// empty. The range is contiguous, so a kernel finds page i at
// base() + i * page_bytes.
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
  // Pages that return to the system together. 64 pages are a whole number of
  // 4 KiB system pages for every head_dim that is a multiple of 16.
  static constexpr uint32_t kSlabPages = 64;

  // Reserves addresses, not memory. Requires page_bytes to be a multiple of
  // 64. kOutOfMemory when the pages would not fit this machine.
  static Result<PagePool> Create(size_t page_bytes, uint32_t capacity_pages);

  ~PagePool();
  PagePool(PagePool&& other) noexcept;
  PagePool& operator=(PagePool&&) = delete;

  // A free page with undefined contents. Requires n_free() > 0.
  PageId Take();
  // Requires a page that Take() returned and that was not given since.
  void Give(PageId id);

  const uint8_t* base() const { return base_; }
  uint8_t* PageData(PageId id) {
    return base_ + page_bytes_ * static_cast<uint32_t>(id);
  }
  size_t page_bytes() const { return page_bytes_; }
  uint32_t capacity() const { return capacity_; }
  uint32_t n_used() const { return n_used_; }
  uint32_t n_free() const { return capacity_ - n_used_; }
  // Slabs with at least one used page: what the system sees of the pool.
  uint32_t n_slabs_in_use() const { return n_slabs_in_use_; }

 private:
  PagePool(size_t page_bytes, uint32_t capacity_pages, uint8_t* base,
           size_t reserved_bytes);

  uint8_t* base_;
  size_t reserved_bytes_;
  size_t page_bytes_;
  uint32_t capacity_;
  uint32_t n_used_ = 0;
  uint32_t n_slabs_in_use_ = 0;
  // Bit p of free_[s]: page 64 s + p is free.
  std::vector<uint64_t> free_;
  // Bit s % 64 of slabs_with_free_[s / 64]: slab s has a free page.
  std::vector<uint64_t> slabs_with_free_;
  // No word of slabs_with_free_ before this one has a bit set.
  size_t lowest_word_ = 0;
};

}  // namespace lkv
