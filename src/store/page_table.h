// PageTable: the pages of one lane in position order.
//
// A page is opened for up to kPageTokens consecutive positions, starting at a
// multiple of kPageTokens: slot s holds position first_pos + s, so pages may
// leave in any order and nobody is renumbered. Every page but the last is full;
// the last one is filled from slot 0 on. Where tokens leave one by one
// (MoveSlots), what stays of some pages shares fewer: such a page is scattered,
// and a table that may have them notes the position of every slot.
//
// Thread-compatible. Arrays are reserved at construction; nothing allocates
// later. Append costs O(1), Remove moves the entries behind it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/state_stream.h"
#include "base/types.h"

namespace lkv {

class PageTable {
 public:
  enum class Slots { kConsecutive, kMovable };
  explicit PageTable(uint32_t capacity_pages,
                     Slots slots = Slots::kConsecutive);
  PageTable(const PageTable& other);
  PageTable(PageTable&&) = default;

  // Bytes of bookkeeping per page of capacity.
  static constexpr size_t BytesPerPage(Slots slots) {
    return sizeof(uint8_t*) + sizeof(uint32_t) +
           (slots == Slots::kMovable ? kPageTokens * sizeof(uint32_t) : 0);
  }
  // The first position of a scattered page: behind all texts, so that no range
  // of positions contains it.
  static constexpr uint32_t kScattered = UINT32_MAX - kPageTokens;

  // Opens an empty page at the end. Requires that the last page is full, that
  // first_pos is a multiple of kPageTokens behind all positions present, and
  // that the table is not full.
  void OpenPage(uint8_t* page, uint32_t first_pos);
  // Marks the next `n` slots as written. Requires that they fit the pages
  // opened; several pages may have been opened before they are filled.
  void AddTokens(uint32_t n);
  // Its tokens and their positions, all below end_pos, where the next one will
  // be. Reading, into an empty table, take_page(index) gives the payload of
  // each page, or nullptr for none.
  void ExchangeState(StateStream& stream, uint32_t end_pos,
                     const std::function<uint8_t*(uint32_t)>& take_page);
  // Takes a full page out and returns it.
  uint8_t* Remove(uint32_t index);
  // Slot slots[i] of full pages has moved to slot i % kPageTokens of page
  // pages[i / kPageTokens]; the other pages of the list are to be removed. Both
  // ascending, so positions stay in order within the pages. Requires
  // Slots::kMovable.
  void MoveSlots(std::span<const uint32_t> pages,
                 std::span<const uint32_t> slots);
  // The payload of page `index` has moved.
  void Relocate(uint32_t index, uint8_t* page);

  uint32_t capacity() const { return capacity_; }
  uint32_t n_pages() const { return static_cast<uint32_t>(pages_.size()); }
  // Tokens in the table = slots that attention may read.
  uint32_t n_tokens() const { return n_tokens_; }
  // The addresses of the pages, in the form kernels read: [n_pages].
  std::span<uint8_t* const> pages() const { return pages_; }
  // kScattered for a page whose positions are not consecutive.
  std::span<const uint32_t> first_positions() const { return first_pos_; }
  // Position of slot `slot`, counted over all pages.
  uint32_t PositionOf(uint32_t slot) const {
    return slots_ == Slots::kMovable
               ? slot_pos_[slot]
               : first_pos_[slot / kPageTokens] + slot % kPageTokens;
  }

 private:
  uint32_t capacity_;
  Slots slots_;
  uint32_t n_tokens_ = 0;
  std::vector<uint8_t*> pages_;
  std::vector<uint32_t> first_pos_;
  std::vector<uint32_t> slot_pos_;  // [n_pages, kPageTokens], kMovable only
};

}  // namespace lkv
