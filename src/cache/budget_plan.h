// BudgetPlan: from what the user allows (a share, tokens, bytes) to pages.
//
// A page costs its payload and its metadata (address, holders, first
// position, policy state); a sequence has a fixed cost beside. The plan says
// how many pages the budget pays for, and refuses budgets that could not work:
//
//   smallest = what every lane needs at least: its sinks, its newest tokens,
//   pinned text, one open and one spare page; and twice its protected tokens,
//   because a cache of which more than half may never leave has nothing left
//   to choose from. Lanes of dense layers need the whole text.
//
// With tiers a budget pays for the coarse copies of the whole text first, and
// for one choice beside the protected tokens.
//
// A share below the smallest is raised to it, except for the sake of dense
// layers; tokens and bytes below it are refused, naming it. No budget needs to
// hold more than the whole text.
//
// A sequence that takes further turns has a plan for every length that it may
// grow to. None of them pays for fewer pages than the plan of a shorter text,
// and the longest decides whether the budget is refused: its dense layers too
// are held against the share of that.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "cache/kv_cache.h"
#include "lookaheadkv/status.h"

namespace lkv {

// What the pages and lanes of a sequence cost.
struct CacheCost {
  KvType type = KvType::kF16;
  size_t page_metadata_bytes = 0;  // beside the payload of a page
  size_t lane_metadata_bytes = 0;
  // Pages at the start of each lane, its sinks, that are f16 whatever the type.
  uint32_t exact_pages = 0;
  // Coarse copy of kColdGroupSlots tokens of a lane; 0: there is none.
  size_t cold_group_bytes = 0;

  // What the first `n_pages` pages of all lanes take for being exact.
  uint64_t ExtraBytesForExact(const KvShape& shape, uint32_t n_pages) const {
    const uint64_t n_exact = n_pages < exact_pages ? n_pages : exact_pages;
    return n_exact * shape.n_lanes() *
           (shape.page_bytes(KvType::kF16) - shape.page_bytes(type));
  }
  // What `n_pages` pages and their lanes cost beside the payload.
  uint64_t MetadataBytes(const KvShape& shape, uint64_t n_pages) const {
    return n_pages * page_metadata_bytes +
           uint64_t{shape.n_lanes()} * lane_metadata_bytes;
  }
  // Payload and metadata of `n_pages` pages of a sequence, which pays for the
  // exact ones from its first token on.
  uint64_t TotalBytes(const KvShape& shape, uint64_t n_pages) const {
    return n_pages * shape.page_bytes(type) + MetadataBytes(shape, n_pages) +
           ExtraBytesForExact(shape, exact_pages);
  }
};

struct BudgetPlan {
  uint64_t budget_bytes = 0;
  uint64_t fill_bytes = 0;  // see SequenceStats
  // Groups of a lane that are copied, of the longest text; 0: nothing ever
  // leaves, or without a copy. Part of budget_bytes.
  uint32_t cold_groups_per_lane = 0;
  // Pages of all lanes together; the pool has exactly these.
  uint32_t capacity_pages = 0;
  // The same for the longest text of the sequence: what the pool may grow to.
  uint32_t capacity_pages_max = 0;
  // The most that one lane may hold, at any length.
  uint32_t pages_per_lane = 0;
  // Pages of a lane that may be protected at once, its open page among them.
  uint32_t protected_pages = 0;
  uint32_t n_dense_lanes = 0;
  // The whole expected text, and its pages in one lane.
  uint32_t text_tokens = 0;
  uint32_t text_pages = 0;
  // The budget pays for the whole expected text.
  bool holds_whole_text = false;

  // Pages of a lane that is not dense, on average, while the dense ones hold
  // the whole text.
  uint32_t mean_pages(uint32_t n_lanes) const;
};

// The plan for the expected lengths of the options.
Result<BudgetPlan> MakeBudgetPlan(const KvShape& shape,
                                  const SequenceOptions& options,
                                  const CacheCost& cost);

}  // namespace lkv
