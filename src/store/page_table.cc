#include "store/page_table.h"

#include "base/check.h"

namespace lkv {

PageTable::PageTable(uint32_t capacity_pages, Slots slots)
    : capacity_(capacity_pages), slots_(slots) {
  pages_.reserve(capacity_pages);
  first_pos_.reserve(capacity_pages);
  if (slots == Slots::kMovable) {
    slot_pos_.reserve(size_t{capacity_pages} * kPageTokens);
  }
}

// A copied vector has no room to spare.
PageTable::PageTable(const PageTable& other)
    : PageTable(other.capacity_, other.slots_) {
  n_tokens_ = other.n_tokens_;
  pages_.assign(other.pages_.begin(), other.pages_.end());
  first_pos_.assign(other.first_pos_.begin(), other.first_pos_.end());
  slot_pos_.assign(other.slot_pos_.begin(), other.slot_pos_.end());
}

void PageTable::OpenPage(uint8_t* page, uint32_t first_pos) {
  CHECK(n_pages() < capacity_);
  CHECK(first_pos % kPageTokens == 0);
  CHECK(first_pos_.empty() || first_pos_.back() == kScattered ||
        first_pos > first_pos_.back());
  pages_.push_back(page);
  first_pos_.push_back(first_pos);
  if (slots_ == Slots::kConsecutive) return;
  for (uint32_t i = 0; i < kPageTokens; ++i) slot_pos_.push_back(first_pos + i);
}

void PageTable::AddTokens(uint32_t n) {
  CHECK(n <= n_pages() * kPageTokens - n_tokens_);
  n_tokens_ += n;
}

uint8_t* PageTable::Remove(uint32_t index) {
  CHECK((index + 1) * kPageTokens <= n_tokens_);
  uint8_t* const page = pages_[index];
  pages_.erase(pages_.begin() + index);
  first_pos_.erase(first_pos_.begin() + index);
  if (slots_ == Slots::kMovable) {
    const auto first = slot_pos_.begin() + index * kPageTokens;
    slot_pos_.erase(first, first + kPageTokens);
  }
  n_tokens_ -= kPageTokens;
  return page;
}

void PageTable::MoveSlots(std::span<const uint32_t> pages,
                          std::span<const uint32_t> slots) {
  CHECK(slots_ == Slots::kMovable && slots.size() % kPageTokens == 0);
  CHECK(slots.size() <= pages.size() * kPageTokens);
  CHECK((pages.back() + 1) * kPageTokens <= n_tokens_);
  for (size_t i = 0; i < slots.size(); ++i) {
    const uint32_t page = pages[i / kPageTokens];
    const uint32_t target =
        page * kPageTokens + static_cast<uint32_t>(i % kPageTokens);
    CHECK(target <= slots[i]);
    slot_pos_[target] = slot_pos_[slots[i]];
    first_pos_[page] = kScattered;
  }
}

void PageTable::ExchangeState(
    StateStream& stream, uint32_t end_pos,
    const std::function<uint8_t*(uint32_t)>& take_page) {
  CHECK(!stream.is_reading() || pages_.empty());
  stream.ExchangeCount(n_tokens_, uint64_t{capacity_} * kPageTokens);
  // Only the last page may be part-filled, by the newest tokens.
  const uint32_t n_open = n_tokens_ % kPageTokens;
  stream.Require(n_tokens_ <= end_pos && n_open == end_pos % kPageTokens);
  uint32_t least_pos = 0;  // of the next page that is not scattered
  for (uint32_t i = 0; i < PagesOf(n_tokens_) && stream.ok(); ++i) {
    if (stream.is_reading()) {
      pages_.push_back(take_page(i));
      stream.Require(pages_.back() != nullptr);
      first_pos_.push_back(0);
      if (slots_ == Slots::kMovable) {
        slot_pos_.resize(pages_.size() * kPageTokens);
      }
    }
    stream.Exchange(first_pos_[i]);
    if (first_pos_[i] != kScattered) {
      stream.Require(first_pos_[i] % kPageTokens == 0 &&
                     first_pos_[i] >= least_pos && first_pos_[i] < end_pos);
      least_pos = first_pos_[i] + kPageTokens;
    }
    const bool is_open = (i + 1) * kPageTokens > n_tokens_;
    stream.Require(!is_open || first_pos_[i] == end_pos - n_open);
    if (slots_ == Slots::kConsecutive) {
      stream.Require(first_pos_[i] != kScattered);
      continue;
    }
    const auto positions =
        std::span(slot_pos_).subspan(i * kPageTokens, kPageTokens);
    stream.Exchange(positions);
    const uint32_t n_filled = is_open ? n_open : kPageTokens;
    for (uint32_t slot = 0; slot < n_filled; ++slot) {
      stream.Require(positions[slot] < end_pos);
    }
  }
}

void PageTable::Relocate(uint32_t index, uint8_t* page) {
  CHECK(index < n_pages());
  pages_[index] = page;
}

}  // namespace lkv
