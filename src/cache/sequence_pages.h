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
// of the two takes new pages from a pool of its own, which has room for all
// that its budget pays for beside what others hold there. A page that others
// hold is copied by whoever writes to it: to the last one, if it is not full,
// or to those that take in moved slots.
//
// Thread-compatible; all changes but Write are made by one thread between
// steps, the same for all forks. Allocates in Create and Fork only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/state_stream.h"
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
    PageTable::Slots slots = PageTable::Slots::kConsecutive;
  };

  static Result<SequencePages> Create(const KvShape& shape,
                                      const Options& options);
  ~SequencePages();
  SequencePages(SequencePages&&) = default;

  // Another sequence with the same pages. O(pages); copies no payload.
  Result<SequencePages> Fork();
  // Requires what PagePool::Grow does.
  void Grow(uint32_t capacity_pages);
  // Requires that no more pages are in use. The pool keeps its addresses.
  void Shrink(uint32_t capacity_pages);

  // Opens the pages that `n_new` tokens at positions n_tokens, n_tokens + 1,
  // ... need in every lane and counts these tokens as present. Requires the
  // room that PagesToOpen() says, in the pool and in each table.
  void Extend(uint32_t n_tokens, uint32_t n_new);
  // Pages per lane that Extend would open.
  static uint32_t PagesToOpen(uint32_t n_tokens, uint32_t n_new) {
    return PagesOf(n_tokens + n_new) - PagesOf(n_tokens);
  }
  // The tables of a sequence of n_tokens. Reading, into an object without
  // pages, their contents are still to be written, and FinishContents to be
  // called.
  void ExchangeState(StateStream& stream, uint32_t n_tokens);
  // Works out what is derived from the contents of pages that somebody else has
  // written.
  void FinishContents();

  // Takes a full page that is not exact out of a lane; unless it is shared, its
  // memory is free at once.
  void Remove(uint32_t lane, uint32_t index);
  // Moves slots of a lane (PageTable::MoveSlots) in pages that are not exact.
  // Of pages that are shared, copies are written to. 60 ns a slot.
  void MoveSlots(uint32_t lane, std::span<const uint32_t> pages,
                 std::span<const uint32_t> slots);
  // Asks for the memory of pages that MoveSlots will need: it reads a few bytes
  // of each of their lines, which a step of several sequences has driven out of
  // the processor's caches.
  void PrefetchSlots(uint32_t lane, std::span<const uint32_t> pages) const;
  // Pages leave anywhere, so a pool that has shrunk is full of holes and no
  // slab is empty. Moves up to kMaxMovesPerCompact pages of the next few lanes
  // into lower holes, if that can empty a slab; likewise pages that are shared
  // no more out of a pool from before a fork, if less than half of its slabs is
  // in use. Lanes take turns: after kPageTokens calls all were looked at. 1 us
  // per page moved.
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
  // The part of that which this sequence copies when it goes on after n_tokens.
  uint64_t shared_open_bytes(uint32_t n_tokens) const;
  // Where new pages come from that are not exact.
  const PagePool& pool() const { return *pools_.rest; }

  // The first page of every lane that may leave and whose slots may move.
  uint32_t first_loose_page() const { return options_.n_exact_pages; }
  bool moves_slots() const {
    return options_.slots == PageTable::Slots::kMovable;
  }
  // Payload of page `index` of any lane.
  size_t PageBytes(uint32_t index) const {
    return shape_.page_bytes(TypeOfSlot(index * kPageTokens));
  }
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
  // The keys of page `index` of a lane, offsets added: keys
  // [head_dim][kPageTokens]. Of slots that hold nothing: anything.
  void ReadKeys(uint32_t lane, uint32_t index, float* keys) const;
  // Slots [first_slot, first_slot + n_slots) of a lane, as kernels read them.
  // Requires first_slot to be the first of a page.
  PageRun Run(uint32_t lane, uint32_t first_slot, uint32_t n_slots) const;

 private:
  // The mean of a lane's keys is taken over its first page from this slot on:
  // the first tokens of any text are the outliers that attention rests on (4 in
  // StreamingLLM, arXiv 2309.17453), however many the options protect.
  static constexpr uint32_t kFirstOffsetSlot = 4;

  // Where new pages come from. Owners: the sequence that takes pages from them,
  // and every fork that holds pages in them.
  struct Pools {
    std::shared_ptr<PagePool> rest;
    std::shared_ptr<PagePool> exact;  // nullptr without exact pages
  };
  // One that this sequence has pages in, but takes none from: from before a
  // fork.
  struct SharedPool {
    std::shared_ptr<PagePool> pool;
    uint32_t n_pages;  // of this sequence in it, not 0
  };
  // Pools with addresses for n_times what the longest text takes.
  static Result<Pools> CreatePools(const KvShape& shape, const Options& options,
                                   uint32_t n_times);

  SequencePages(const KvShape& shape, const Options& options, Pools pools);
  // For Fork, which makes the copy a holder of the pages.
  SequencePages(const SequencePages&) = default;

  bool HasRoomBesideOthers(const Pools& pools) const;
  // All pools with pages of this sequence, its own among them.
  std::vector<SharedPool> PoolsInUse() const;
  // The pool that a page lies in.
  PagePool& PoolOf(const uint8_t* page) const;
  // Holds a page no more.
  void GiveBack(const uint8_t* page);
  uint64_t SharedBytes(const uint8_t* page) const;
  // A new page for place `index` of a lane.
  uint8_t* TakeFor(uint32_t lane, uint32_t index);
  // Makes page `index` of a lane one that this sequence may write to.
  void OwnPage(uint32_t lane, uint32_t index);

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
  std::vector<SharedPool> shared_pools_;
  bool is_forked_ = false;  // others may hold pages of it
  uint32_t n_used_ = 0;
  std::vector<float> key_offsets_;  // [n_lanes, head_dim], with exact ones
  std::vector<PageTable> tables_;   // [n_lanes]
  uint32_t next_lane_ = 0;          // to be compacted
};

}  // namespace lkv
