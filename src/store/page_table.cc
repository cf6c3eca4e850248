#include "store/page_table.h"

#include "base/check.h"

namespace lkv {

PageTable::PageTable(uint32_t capacity_pages) : capacity_(capacity_pages) {
  ids_.reserve(capacity_pages);
  first_pos_.reserve(capacity_pages);
}

void PageTable::OpenPage(PageId id, uint32_t first_pos) {
  CHECK(n_pages() < capacity_);
  CHECK(first_pos % kPageTokens == 0);
  CHECK(first_pos_.empty() || first_pos > first_pos_.back());
  ids_.push_back(static_cast<uint32_t>(id));
  first_pos_.push_back(first_pos);
}

void PageTable::AddTokens(uint32_t n) {
  CHECK(n <= n_pages() * kPageTokens - n_tokens_);
  n_tokens_ += n;
}

PageId PageTable::Remove(uint32_t index) {
  CHECK((index + 1) * kPageTokens <= n_tokens_);
  const PageId id = page_id(index);
  ids_.erase(ids_.begin() + index);
  first_pos_.erase(first_pos_.begin() + index);
  n_tokens_ -= kPageTokens;
  return id;
}

void PageTable::Relocate(uint32_t index, PageId id) {
  CHECK(index < n_pages());
  ids_[index] = static_cast<uint32_t>(id);
}

}  // namespace lkv
