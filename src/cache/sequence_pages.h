// SequencePages: the pages and the page tables of one sequence, kept in step.
//
// Pages of int8 are joined by exact ones: the first pages of
// each lane, its sinks, are f16 and come from a pool of their own. They never
// leave (sinks are protected), so both pools stay in step, too. Other keys are
// stored less an offset, the mean of the first keys of their lane: keys have
// large means in a few dimensions that would stretch every row's scale, and a
// constant added to all keys changes no softmax (SageAttention, arXiv
// 2410.02367, subtracts the mean of the whole text). With 12 of the first keys
// the KL of int8 to f16 falls to a third (docs/experiments.md).
//
// A fork shares the pages of the sequence that it came from, for reading. Each
// of the two takes new pages from a pool of its own, so neither can take what
// the other's budget pays for. The last page, if it is not full, is copied by
// whoever writes to it first.
//
// Thread-compatible; all changes but Write are made by one thread between
// steps, the same for all forks. Allocates in Create and Fork only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/types.h"
#include "kernels/kernel_table.h"
#include "lookaheadkv/status.h"
#include "store/page_pool.h"
#include "store/page_table.h"

namespace lkv {

class SequencePages {
 public:
  struct Options {
    KvType type = KvType::kF16;
    // Pages of each lane that are f16 if the type is int8.
    uint32_t n_exact_pages = 0;
    // Of all lanes together, exact ones included; may Grow to the second.
    uint32_t capacity_pages = 0;
    uint32_t capacity_pages_max = 0;
    uint32_t pages_per_lane = 0;
  };

  static Result<SequencePages> Create(const KvShape& shape,
                                      const Options& options);
  ~SequencePages();
  SequencePages(SequencePages&&) = default;

  // Another sequence with the same pages. O(pages); copies no payload.
  Result<SequencePages> Fork();
  // Requires what PagePool::Grow does.
  void Grow(uint32_t capacity_pages);

  // Opens the pages that `n_new` tokens at positions n_tokens, n_tokens + 1,
  // ... need in every lane and counts these tokens as present. Requires the
  // room that PagesToOpen() says, in the pool and in each table.
  void Extend(uint32_t n_tokens, uint32_t n_new);
  // Pages per lane that Extend would open.
  static uint32_t PagesToOpen(uint32_t n_tokens, uint32_t n_new) {
    return PagesOf(n_tokens + n_new) - PagesOf(n_tokens);
  }
  // Takes a full page that is not exact out of a lane; unless it is shared, its
  // memory is free at once.
  void Remove(uint32_t lane, uint32_t index);
  // Pages leave anywhere, so a pool that has shrunk is full of holes and no
  // slab is empty. Moves up to kMaxMovesPerCompact pages of the next few lanes
  // into lower holes, if that can empty a slab; likewise pages that were shared
  // once out of a pool of which nobody else uses much. Lanes take turns: after
  // kPageTokens calls all were looked at. 1 us per page moved.
  void Compact();

  static constexpr uint32_t kMaxMovesPerCompact = 32;

  uint32_t n_lanes() const { return static_cast<uint32_t>(tables_.size()); }
  const PageTable& table(uint32_t lane) const { return tables_[lane]; }
  // Pages of all lanes, shared ones included.
  uint32_t n_used() const { return n_used_; }
  uint32_t n_free() const { return options_.capacity_pages - n_used_; }
  // Their payload.
  uint64_t payload_bytes() const;
  // The part of it that other sequences hold, too. O(pages).
  uint64_t shared_bytes() const;
  // Where new pages come from that are not exact.
  const PagePool& pool() const { return *pools_.rest; }

  uint8_t* PageOfSlot(uint32_t lane, uint32_t slot) const {
    return tables_[lane].pages()[slot / kPageTokens];
  }
  // Writes k, v [head_dim] into a slot that Extend has made. Slots of a lane in
  // order; different lanes by any threads.
  void Write(const KernelTable& kernels, uint32_t lane, uint32_t slot,
             const float* k, const float* v);
  KvType TypeOfSlot(uint32_t slot) const {
    return slot / kPageTokens < options_.n_exact_pages ? KvType::kF16
                                                       : options_.type;
  }
  // Slots [first_slot, first_slot + n_slots) of a lane, as kernels read them.
  // Requires first_slot to be the first of a page.
  PageRun Run(uint32_t lane, uint32_t first_slot, uint32_t n_slots) const;

 private:
  // The mean of a lane's keys is taken over its first page from this slot on:
  // the first tokens of any text are the outliers that attention rests on (4 in
  // StreamingLLM, arXiv 2309.17453), however many the options protect.
  static constexpr uint32_t kFirstOffsetSlot = 4;

  // Where new pages come from.
  struct Pools {
    std::shared_ptr<PagePool> rest;
    std::shared_ptr<PagePool> exact;  // nullptr without exact pages
  };
  static Result<Pools> CreatePools(const KvShape& shape,
                                   const Options& options);

  SequencePages(const KvShape& shape, const Options& options, Pools pools);
  SequencePages(const SequencePages&) = default;

  bool HasPagesIn(const PagePool& pool) const;
  // The pool that a page lies in.
  PagePool& PoolOf(const uint8_t* page) const;
  // A new page for place `index` of a lane.
  uint8_t* TakeFor(uint32_t lane, uint32_t index);
  // Makes the last page of every lane one that this sequence may write to.
  void OwnLastPages();

  // What a lane's keys of int8 are stored less of: [head_dim], or nullptr for
  // nothing. Set when the first page is full.
  const float* KeyOffset(uint32_t lane) const {
    return options_.n_exact_pages > 0
               ? &key_offsets_[size_t{lane} * shape_.head_dim]
               : nullptr;
  }
  void SetKeyOffset(uint32_t lane);
  uint32_t CompactLane(uint32_t lane, uint32_t end_page, uint32_t max_moves);

  KvShape shape_;
  Options options_;  // capacity_pages is what Grow made it
  Pools pools_;
  // Those from before the forks, this sequence's or its ancestors', as long as
  // it had pages there when it was forked last.
  std::vector<std::shared_ptr<PagePool>> shared_pools_;
  uint32_t n_used_ = 0;
  std::vector<float> key_offsets_;  // [n_lanes, head_dim], with exact ones
  std::vector<PageTable> tables_;   // [n_lanes]
  uint32_t next_lane_ = 0;          // to be compacted
};

}  // namespace lkv
