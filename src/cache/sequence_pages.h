// SequencePages: the pool and the page tables of one sequence, kept in step.
//
// Thread-compatible; all changes are made by one thread between steps.
// Allocates in Create only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "lookaheadkv/status.h"
#include "store/page_pool.h"
#include "store/page_table.h"

namespace lkv {

class SequencePages {
 public:
  // capacity_pages of all lanes together, which may Grow to
  // capacity_pages_max.
  static Result<SequencePages> Create(const KvShape& shape,
                                      uint32_t capacity_pages,
                                      uint32_t capacity_pages_max,
                                      uint32_t pages_per_lane);
  // Requires what PagePool::Grow does.
  void Grow(uint32_t capacity_pages) { pool_.Grow(capacity_pages); }

  // Opens the pages that `n_new` tokens at positions n_tokens, n_tokens + 1,
  // ... need in every lane and counts these tokens as present. Requires the
  // room that PagesToOpen() says, in the pool and in each table.
  void Extend(uint32_t n_tokens, uint32_t n_new);
  // Pages per lane that Extend would open.
  static uint32_t PagesToOpen(uint32_t n_tokens, uint32_t n_new) {
    return PagesOf(n_tokens + n_new) - PagesOf(n_tokens);
  }
  // Takes a full page out of a lane; its memory is free at once.
  void Remove(uint32_t lane, uint32_t index);
  // Pages leave anywhere, so a pool that has shrunk is full of holes and no
  // slab is empty. Moves up to kMaxMovesPerCompact pages of the next few lanes
  // into lower holes, if that can empty a slab. Lanes take turns: after
  // kPageTokens calls all were looked at. 1 us per page moved.
  void Compact();

  static constexpr uint32_t kMaxMovesPerCompact = 32;

  uint32_t n_lanes() const { return static_cast<uint32_t>(tables_.size()); }
  const PageTable& table(uint32_t lane) const { return tables_[lane]; }
  const PagePool& pool() const { return pool_; }
  uint8_t* PageOfSlot(uint32_t lane, uint32_t slot) {
    return pool_.PageData(tables_[lane].page_id(slot / kPageTokens));
  }

 private:
  SequencePages(PagePool pool, uint32_t n_lanes, uint32_t pages_per_lane);

  uint32_t CompactLane(uint32_t lane, uint32_t end_page, uint32_t max_moves);

  PagePool pool_;
  std::vector<PageTable> tables_;  // [n_lanes]
  uint32_t next_lane_ = 0;         // to be compacted
};

}  // namespace lkv
