#include "store/page_table.h"

#include "base/check.h"

namespace lkv {

PageTable::PageTable(uint32_t capacity_pages) : capacity_(capacity_pages) {
  pages_.reserve(capacity_pages);
  first_pos_.reserve(capacity_pages);
}

// A copied vector has no room to spare.
PageTable::PageTable(const PageTable& other) : PageTable(other.capacity_) {
  n_tokens_ = other.n_tokens_;
  pages_.assign(other.pages_.begin(), other.pages_.end());
  first_pos_.assign(other.first_pos_.begin(), other.first_pos_.end());
}

void PageTable::OpenPage(uint8_t* page, uint32_t first_pos) {
  CHECK(n_pages() < capacity_);
  CHECK(first_pos % kPageTokens == 0);
  CHECK(first_pos_.empty() || first_pos > first_pos_.back());
  pages_.push_back(page);
  first_pos_.push_back(first_pos);
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
  n_tokens_ -= kPageTokens;
  return page;
}

void PageTable::Relocate(uint32_t index, uint8_t* page) {
  CHECK(index < n_pages());
  pages_[index] = page;
}

}  // namespace lkv
