// AttentionRunner: attention of a step over the page tables of its sequences,
// shared out over a thread team.
//
// Decode (one new token): a lane is cut into runs of kRunSlots slots, one item
// each. Who finishes the last run of a lane merges the attention states of all,
// in slot order. Where tokens have left with a coarse copy, ColdAttention adds
// what the query asks for of those. Prefill: an item is a block of query tokens
// of one lane. Since cuts and merge order are fixed, results do not depend on
// who took what.
//
// The probabilities of observed queries are kept, reduced to masses per slot
// and handed to the sequence's evidence and to the observer, lane by lane in
// the order of positions. In prefill this happens in waves of at most
// kWaveRows observed queries, so that memory does not grow with the chunk.
//
// Thread rule: Reserve and BeginStep by one caller, Attend by all members of
// the team. Attend allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_team.h"
#include "cache/cold_attention.h"
#include "cache/kv_cache.h"
#include "cache/step_part.h"
#include "kernels/kernel_table.h"

namespace lkv {

// New tokens [begin, end) of a part, counted from its first.
struct QueryRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

class AttentionRunner {
 public:
  // 512 slots of head_dim 64 are 128 KiB of f16, 5 us: short beside what a
  // thread that comes late would wait for.
  static constexpr uint32_t kRunSlots = 512;
  // Observed queries between two rounds of evidence in prefill.
  static constexpr uint32_t kWaveRows = 16;

  AttentionRunner(const KvShape& shape, const KernelTable& kernels,
                  uint32_t max_threads, PrefillProducts prefill);

  // Makes room for lanes of n_slots slots and steps of n_parts sequences.
  // Without memory for it the old room stays usable.
  void Reserve(uint32_t n_slots, uint32_t n_parts);
  // From now on queries are observed: makes room for their probabilities, too.
  // (A cache that keeps everything needs none: 13 MiB for 8 KV heads of 8,192
  // slots.)
  void ReserveMasses();
  // From now on sequences may have coarse copies of their tokens.
  void ReserveCold();
  // Bytes reserved; the system gives them as they are used.
  uint64_t n_bytes() const;
  // Requires what Attend does of `parts`, whose page tables hold still until
  // the step's last Attend.
  void BeginStep(std::span<const StepPart> parts);

  // q and out as in KvCache::Attend; observer may be nullptr.
  void Attend(TeamMember& me, std::span<const StepPart> parts, uint32_t layer,
              TokenRows q, float* out, size_t out_stride,
              AttentionObserver* observer);

 private:
  // One layer's call, as all functions below see it.
  struct Call {
    uint32_t layer;
    TokenRows q;
    float* out;
    size_t out_stride;
    AttentionObserver* observer;

    bool Observes(const StepPart& part) const {
      return observer != nullptr || part.sequence->evidence() != nullptr;
    }
  };
  // What one member works with alone.
  struct alignas(64) Member {
    AlignedBuffer<float> q;          // [block_rows, head_dim] scaled queries
    AlignedBuffer<float> scratch;    // of attend_prefill
    AlignedBuffer<float> p;          // [observed_rows, slot_stride]
    AlignedBuffer<float> p_max;      // [observed_rows, chunk_stride]
    AlignedBuffer<float> m;          // [block_rows]
    AlignedBuffer<float> l;          // [block_rows]
    AlignedBuffer<float> mass_max;   // [slot_stride]
    AlignedBuffer<float> mass_mean;  // [slot_stride]
    // A run of exact pages and coarse copies, for attend_prefill_mixed.
    std::vector<const uint8_t*> run_pages;
    std::vector<ColdPage> run_cold;
  };
  void AllocateMasses(uint32_t n_parts, size_t slot_stride,
                      size_t chunk_stride);
  void AllocateCold(uint32_t n_slots, uint32_t n_parts);

  void AttendDecodes(TeamMember& me, std::span<const StepPart> parts,
                     const Call& call);
  // One decode item: a run of the exact pages of a lane or one of the scan of
  // its coarse copies.
  struct LaneRun {
    enum class Of { kExact, kScan };
    Of of;
    const StepPart* part;
    size_t pair;  // index of (part, KV head)
    uint32_t kv_head;
    uint32_t run;           // of those of its kind
    uint32_t n_exact_runs;  // of the lane
    uint32_t n_scan_runs;

    uint32_t first_slot() const { return run * kRunSlots; }
  };
  LaneRun LaneRunOf(std::span<const StepPart> parts, uint32_t layer,
                    size_t item) const;
  PageRun PagesOfRun(const LaneRun& item, uint32_t layer) const;
  void DecodeRun(Member& mine, const LaneRun& item, const PageRun* next,
                 const Call& call);
  // Merges the states of all runs of a pair into the first.
  void MergeRuns(size_t pair, uint32_t n_runs);
  // Turns the merged state into output, and shows the masses to whoever
  // observes.
  void FinishDecode(Member& mine, const StepPart& part, size_t pair,
                    const Call& call);

  void AttendPrefill(TeamMember& me, const StepPart& part, const Call& call);
  // Query tokens of one item, when n_queries of each KV head are to be shared
  // out.
  uint32_t BlockQueries(uint32_t n_queries, uint32_t n_members) const;
  void PrefillBlock(Member& mine, const StepPart& part, uint32_t kv_head,
                    QueryRange block, QueryRange wave, const Call& call);
  using PrefillFn = void(const AttendPrefillArgs& args);
  PrefillFn* PrefillKernel(const CachedSequence& sequence) const;
  void ObserveWave(const StepPart& part, uint32_t kv_head, QueryRange wave,
                   const Call& call);

  // All slots of a lane up to n_slots, exact or copied.
  PageRun MixedRun(Member& mine, const CachedSequence& sequence, uint32_t lane,
                   uint32_t n_slots) const;
  // `row` is the observed query's among the step's.
  void Observe(const StepPart& part, const Call& call, uint32_t kv_head,
               size_t row, const LaneObservation& observation) const;

  Member& MemberOf(const TeamMember& me) { return members_[me.index()]; }
  // The decode items of one layer by (part, KV head) pair: of n pairs, pair i
  // has the runs of the scan [i] .. [i + 1] and those of exact pages
  // [n + i] .. [n + i + 1]. So each kind prefetches its next, and what a member
  // reads of copies is mostly what it has scanned. Parts in prefill have none.
  std::span<const uint32_t> FirstItems(uint32_t layer, size_t n_parts) const {
    return {&first_item_[layer * first_item_stride()],
            2 * n_parts * shape_.n_kv_heads + 1};
  }
  size_t first_item_stride() const {
    return 2 * size_t{part_capacity_} * shape_.n_kv_heads + 1;
  }

  const KvShape shape_;
  const KernelTable& kernels_;
  const PrefillProducts prefill_;
  const uint32_t block_queries_;  // most query tokens of one prefill item
  const uint32_t block_rows_;     // the same times group
  const uint32_t observed_rows_;  // most rows of it that are kept
  std::vector<Member> members_;
  bool keeps_masses_ = false;
  bool has_cold_ = false;
  uint32_t slot_capacity_ = 0;
  uint32_t part_capacity_ = 0;
  size_t slot_stride_ = 0;            // floats of a row over slots
  size_t chunk_stride_ = 0;           // floats of a row over chunks
  size_t run_stride_ = 0;             // runs of the longest lane
  std::vector<uint32_t> first_item_;  // [n_layers, .. + 1], see FirstItems
  // Items that what is chosen of coarse copies is cut into, for every part:
  // [n_layers].
  std::vector<uint32_t> read_runs_;
  std::vector<uint32_t> rest_runs_;  // the same of what is left out, if sampled
  // Runs of a pair that are done in the layer under way; 0 between layers.
  std::vector<std::atomic<uint32_t>> n_runs_done_;
  // Decode, per (part, KV head) pair.
  AlignedBuffer<float> run_m_;  // [.., run_stride, group]
  AlignedBuffer<float> run_l_;  // [.., run_stride, group]
  AlignedBuffer<float> run_o_;  // [.., run_stride, group, head_dim]
  AlignedBuffer<float> p_;      // [.., group, slot_stride]
  AlignedBuffer<float> p_max_;  // [.., group, chunk_stride]
  ColdAttention cold_;
  // Prefill, masses of a wave: [n_kv_heads, kWaveRows, slot_stride].
  AlignedBuffer<float> wave_max_;
  AlignedBuffer<float> wave_mean_;
};

}  // namespace lkv
