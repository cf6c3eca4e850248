// PageTable: the pages of one lane in position order.
//
// A page holds up to kPageTokens consecutive positions, starting at a multiple
// of kPageTokens: slot s of a page holds position first_pos + s for ever, so
// pages may leave in any order and nobody is renumbered. Every page but the
// last is full; the last one is filled from slot 0 on.
//
// Thread-compatible. Arrays are reserved at construction; nothing allocates
// later. Append costs O(1), Remove moves the entries behind it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace lkv {

class PageTable {
 public:
  explicit PageTable(uint32_t capacity_pages);
  PageTable(const PageTable& other);
  PageTable(PageTable&&) = default;

  // Bytes of bookkeeping per page of capacity.
  static constexpr size_t kBytesPerPage = sizeof(uint8_t*) + sizeof(uint32_t);

  // Opens an empty page at the end. Requires that the last page is full, that
  // first_pos is a multiple of kPageTokens behind all positions present, and
  // that the table is not full.
  void OpenPage(uint8_t* page, uint32_t first_pos);
  // Marks the next `n` slots as written. Requires that they fit the pages
  // opened; several pages may have been opened before they are filled.
  void AddTokens(uint32_t n);
  // Takes a full page out and returns it.
  uint8_t* Remove(uint32_t index);
  // The payload of page `index` has moved.
  void Relocate(uint32_t index, uint8_t* page);

  uint32_t capacity() const { return capacity_; }
  uint32_t n_pages() const { return static_cast<uint32_t>(pages_.size()); }
  // Tokens in the table = slots that attention may read.
  uint32_t n_tokens() const { return n_tokens_; }
  // The addresses of the pages, in the form kernels read: [n_pages].
  std::span<uint8_t* const> pages() const { return pages_; }
  uint32_t first_pos(uint32_t index) const { return first_pos_[index]; }
  std::span<const uint32_t> first_positions() const { return first_pos_; }
  // Position of slot `slot`, counted over all pages.
  uint32_t PositionOf(uint32_t slot) const {
    return first_pos_[slot / kPageTokens] + slot % kPageTokens;
  }

 private:
  uint32_t capacity_;
  uint32_t n_tokens_ = 0;
  std::vector<uint8_t*> pages_;
  std::vector<uint32_t> first_pos_;
};

}  // namespace lkv
