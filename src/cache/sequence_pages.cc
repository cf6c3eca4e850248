#include "cache/sequence_pages.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lkv {

Result<SequencePages> SequencePages::Create(const KvShape& shape,
                                            uint32_t capacity_pages,
                                            uint32_t capacity_pages_max,
                                            uint32_t pages_per_lane) {
  Result<PagePool> pool =
      PagePool::Create(shape.page_bytes(), capacity_pages, capacity_pages_max);
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

void SequencePages::Compact() {
  // All pages could lie below end_page, the ones that the lanes open next
  // included; one slab more is not worth a move.
  const uint32_t slab_pages = pool_.slab_pages();
  const uint32_t n_slabs =
      (pool_.n_used() + n_lanes() + slab_pages - 1) / slab_pages;
  if (pool_.n_slabs_in_use() <= n_slabs + 1) return;
  const uint32_t end_page = n_slabs * slab_pages;
  uint32_t n_moves = 0;
  for (uint32_t i = 0; i < CeilDiv(n_lanes(), kPageTokens); ++i) {
    n_moves += CompactLane(next_lane_, end_page, kMaxMovesPerCompact - n_moves);
    // A lane with more to move goes on in the next call.
    if (n_moves == kMaxMovesPerCompact) return;
    next_lane_ = (next_lane_ + 1) % n_lanes();
  }
}

// Moves pages at or above end_page below it. Returns how many.
uint32_t SequencePages::CompactLane(uint32_t lane, uint32_t end_page,
                                    uint32_t max_moves) {
  PageTable& table = tables_[lane];
  uint32_t n_moves = 0;
  for (uint32_t i = 0; i < table.n_pages() && n_moves < max_moves; ++i) {
    const PageId from = table.page_id(i);
    if (static_cast<uint32_t>(from) < end_page) continue;
    const PageId to = pool_.Take();
    std::memcpy(pool_.PageData(to), pool_.PageData(from), pool_.page_bytes());
    table.Relocate(i, to);
    pool_.Give(from);
    ++n_moves;
  }
  return n_moves;
}

}  // namespace lkv
