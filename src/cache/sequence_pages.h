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
// Thread-compatible; all changes but Write are made by one thread between
// steps. Allocates in Create only.
#pragma once

#include <cstdint>
#include <optional>
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
  // Takes a full page that is not exact out of a lane; its memory is free at
  // once.
  void Remove(uint32_t lane, uint32_t index);
  // Pages leave anywhere, so a pool that has shrunk is full of holes and no
  // slab is empty. Moves up to kMaxMovesPerCompact pages of the next few lanes
  // into lower holes, if that can empty a slab. Lanes take turns: after
  // kPageTokens calls all were looked at. 1 us per page moved.
  void Compact();

  static constexpr uint32_t kMaxMovesPerCompact = 32;

  uint32_t n_lanes() const { return static_cast<uint32_t>(tables_.size()); }
  const PageTable& table(uint32_t lane) const { return tables_[lane]; }
  uint32_t n_used() const {
    return pool_.n_used() + (exact_pool_ ? exact_pool_->n_used() : 0);
  }
  uint32_t n_free() const { return capacity_pages_ - n_used(); }
  // Payload of all pages in use.
  uint64_t payload_bytes() const;
  // The pool of all pages that are not exact.
  const PagePool& pool() const { return pool_; }

  uint8_t* PageOfSlot(uint32_t lane, uint32_t slot) {
    const uint32_t page = slot / kPageTokens;
    PagePool& pool = page < n_exact_pages_ ? *exact_pool_ : pool_;
    return pool.PageData(tables_[lane].page_id(page));
  }
  // Writes k, v [head_dim] into a slot that Extend has made. Slots of a lane in
  // order; different lanes by any threads.
  void Write(const KernelTable& kernels, uint32_t lane, uint32_t slot,
             const float* k, const float* v);
  KvType TypeOfSlot(uint32_t slot) const {
    return slot / kPageTokens < n_exact_pages_ ? KvType::kF16 : type_;
  }
  // Slots [first_slot, first_slot + n_slots) of a lane, as kernels read them.
  // Requires first_slot to be the first of a page.
  PageRun Run(uint32_t lane, uint32_t first_slot, uint32_t n_slots) const;

 private:
  // The mean of a lane's keys is taken over its first page from this slot on:
  // the first tokens of any text are the outliers that attention rests on (4 in
  // StreamingLLM, arXiv 2309.17453), however many the options protect.
  static constexpr uint32_t kFirstOffsetSlot = 4;

  SequencePages(const KvShape& shape, const Options& options, PagePool pool,
                std::optional<PagePool> exact_pool);

  // What a lane's keys of int8 are stored less of: [head_dim], or nullptr for
  // nothing. Set when the first page is full.
  const float* KeyOffset(uint32_t lane) const {
    return n_exact_pages_ > 0 ? &key_offsets_[size_t{lane} * head_dim_]
                              : nullptr;
  }
  void SetKeyOffset(uint32_t lane);
  uint32_t CompactLane(uint32_t lane, uint32_t end_page, uint32_t max_moves);

  KvType type_;
  uint32_t head_dim_;
  uint32_t n_exact_pages_;
  uint32_t capacity_pages_;
  PagePool pool_;
  std::optional<PagePool> exact_pool_;  // if n_exact_pages_ > 0
  std::vector<float> key_offsets_;      // [n_lanes, head_dim], likewise
  std::vector<PageTable> tables_;       // [n_lanes]
  uint32_t next_lane_ = 0;              // to be compacted
};

}  // namespace lkv
