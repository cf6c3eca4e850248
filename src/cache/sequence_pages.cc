#include "cache/sequence_pages.h"

#include <utility>

namespace lkv {

Result<SequencePages> SequencePages::Create(const KvShape& shape,
                                            uint32_t capacity_pages,
                                            uint32_t pages_per_lane) {
  Result<PagePool> pool = PagePool::Create(shape.page_bytes(), capacity_pages);
  if (!pool.ok()) return pool.status();
  return SequencePages(*std::move(pool), shape.n_lanes(), pages_per_lane);
}

SequencePages::SequencePages(PagePool pool, uint32_t n_lanes,
                             uint32_t pages_per_lane)
    : pool_(std::move(pool)) {
  tables_.reserve(n_lanes);
  for (uint32_t lane = 0; lane < n_lanes; ++lane) {
    tables_.emplace_back(pages_per_lane);
  }
}

void SequencePages::Extend(uint32_t n_tokens, uint32_t n_new) {
  const uint32_t first_page = PagesOf(n_tokens);
  const uint32_t end_page = PagesOf(n_tokens + n_new);
  for (PageTable& table : tables_) {
    for (uint32_t page = first_page; page < end_page; ++page) {
      table.OpenPage(pool_.Take(), page * kPageTokens);
    }
    table.AddTokens(n_new);
  }
}

void SequencePages::Remove(uint32_t lane, uint32_t index) {
  pool_.Give(tables_[lane].Remove(index));
}

}  // namespace lkv
