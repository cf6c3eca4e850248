// ColdAttention: attention of decoded tokens over what their sequences hold of
// tokens that have left: coarse copies (store/cold_pages.h).
//
// Two phases of a layer. First every lane is scanned: the digests of its groups
// give the logits of all its tokens by estimate, each run of the scan sums them
// up page by page while they are at hand, and with the state of its exact pages
// that becomes the mass of every page. Whoever finishes the last lane of a
// sequence chooses: the lanes share what may be read (tiers.attend, of what has
// left); a fifth of the mean is each one's own (the floor of AdaKV, arXiv
// 2407.11550), the rest goes to the pages of the greatest mass of all. (Quest,
// arXiv 2406.10774, chooses by page, too, but by bounds of keys and for each
// head alone.) Then what the estimates of the chosen pages lack is read. The
// query that chooses is the one that reads: one step of delay costs a factor of
// seven in KL.
//
// Masses are compared by their first bits, in steps of an eighth of an octave;
// of pages that are alike the first are taken. Results depend on the calls
// alone: what is cut is cut at fixed places.
//
// Thread rule: Reserve by one caller; Scan, Choose and Read by any members of
// the team, for different pairs or runs at the same time. Nothing but Reserve
// allocates.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_team.h"
#include "cache/kv_cache.h"
#include "cache/step_part.h"
#include "kernels/kernel_table.h"

namespace lkv {

class ColdAttention {
 public:
  ColdAttention(const KvShape& shape, const KernelTable& kernels,
                uint32_t max_threads);

  // Makes room for sequences of n_slots tokens and steps of n_parts of them.
  void Reserve(uint32_t n_slots, uint32_t n_parts);
  uint64_t n_bytes() const;

  // One layer of a step. A *pair* is the index of (part, KV head).
  struct Call {
    std::span<const StepPart> parts;
    uint32_t layer;
    TokenRows q;  // of all heads, not scaled
    // The state of the exact pages: [group] from [pair * exact_stride] on.
    const float* exact_m;
    const float* exact_l;
    size_t exact_stride;
  };

  // Whether a part has pages to be read here: decodes, and has copies.
  static bool Concerns(const StepPart& part) {
    return part.n_tokens == 1 && part.sequence->cold() != nullptr;
  }

  // Items that the scan of a lane is cut into; 0 for parts it does not concern.
  static uint32_t ScanRuns(const StepPart& part, uint32_t lane);
  // Prefetches the run behind, of this pair or the next.
  void Scan(const Call& call, size_t pair, uint32_t run, uint32_t member);
  // Once all runs of a pair are scanned and its exact state is complete; the
  // last pair of a part chooses for all of them.
  void Choose(const Call& call, size_t pair);

  // Items that the reading of a part is cut into, at most.
  uint32_t MostReadRuns(const StepPart& part, uint32_t layer) const;
  // Returns the pair of which everything chosen has been read with this item:
  // each pair once.
  std::optional<size_t> Read(const Call& call, size_t part, uint32_t item);
  // Where the sequence samples this layer: items that what was left out is cut
  // into, at most; else 0.
  uint32_t MostRestRuns(const StepPart& part, uint32_t layer) const;
  // Reads of that. To be called once all of Read is done; where the states of
  // the exact pages were, those of all that was read have been merged. Tells
  // the sequence in the end.
  void ReadRest(const Call& call, size_t part, uint32_t item);
  // Merges what was read for a pair into an attention state.
  void MergeInto(size_t pair, float* m, float* l, float* o) const;

 private:
  // Groups of one item of the scan, pages of one item of the reading: about 1
  // us of either.
  static constexpr uint32_t kScanGroups = 8;
  static constexpr uint32_t kRunPages = kAttendChunkSlots / kPageTokens;
  static_assert(kScanGroups * kColdGroupPages % kMassPadding == 0);
  // A lane's own is this part of the mean.
  static constexpr uint32_t kFloorParts = 5;

  // Masses from 2^-40 to 1 by their first bits (8 of the exponent, 3 behind);
  // smaller ones are in bin 1, pages that do not stand in bin 0.
  static constexpr uint32_t kMassBits = 20;  // that are left out
  static constexpr uint32_t kBelowBins = ((127 - 40) << (23 - kMassBits)) - 1;
  static constexpr uint32_t kBins = (127 << (23 - kMassBits)) - kBelowBins + 1;
  static uint32_t BinOf(float mass);

  const StepPart& PartOf(const Call& call, size_t pair) const {
    return call.parts[pair / shape_.n_kv_heads];
  }
  uint32_t LaneOf(const Call& call, size_t pair) const {
    return shape_.LaneOf(call.layer,
                         static_cast<uint32_t>(pair % shape_.n_kv_heads));
  }
  const float* ScaledQuery(const Call& call, size_t pair, uint32_t member);
  // The digests of a run of the scan; none of a run that there is not.
  std::span<const uint8_t* const> Digests(const Call& call, size_t pair,
                                          uint32_t run) const;

  // Pages that a part has copied in a layer.
  uint32_t PagesIn(const StepPart& part, uint32_t layer) const;
  // How many of n_pages that have left a part reads.
  static uint32_t Quota(const StepPart& part, uint32_t n_pages);
  void EstimateMasses(const Call& call, size_t pair);
  // How many pages each lane of a part reads: n_chosen_.
  void Share(const Call& call, size_t part);
  // Writes the pages that a lane reads behind those of the lanes before it.
  void Pick(const Call& call, size_t pair);

  // The same for the pages that it leaves out.
  void PickRest(const Call& call, size_t pair);
  // The share of a pair's attention that the runs of its rest got.
  double GapOf(const Call& call, size_t pair) const;

  // A run of a part's pages of all lanes, n_pages[pair] each.
  struct PairRun {
    size_t pair;
    uint32_t run;
  };
  std::optional<PairRun> RunOf(const std::vector<uint32_t>& n_pages,
                               size_t part, uint32_t item) const;
  void AttendRun(const PairRun& at, const std::vector<uint32_t>& n_pages,
                 const std::vector<ChosenColdPage>& pages);
  // Whether it was the last run of a pair.
  bool FinishRun(size_t pair, const std::vector<uint32_t>& n_pages);
  static uint32_t RunsOf(uint32_t n_pages) {
    // Who has nothing to read is done with its first run.
    return std::max(1u, CeilDiv(n_pages, kRunPages));
  }

  ColdEstimates EstimatesOf(size_t pair);
  // Where the pages of a pair begin, counted from its part's first.
  uint32_t FirstPage(const std::vector<uint32_t>& n_pages, size_t pair) const;

  const KvShape shape_;
  const KernelTable& kernels_;
  uint32_t slot_capacity_ = 0;
  uint32_t part_capacity_ = 0;
  // Of the longest lane, rounded up to what kernels go through at once.
  size_t page_stride_ = 0;
  size_t scan_run_stride_ = 0;
  size_t run_stride_ = 0;                // runs of the reading
  std::vector<AlignedBuffer<float>> q_;  // [members][group, head_dim]
  // See ColdEstimates.
  AlignedBuffer<float> logits_;          // [pairs, group, page_stride, 16]
  AlignedBuffer<int8_t> folded_q_;       // [pairs, groups, group, head_dim]
  AlignedBuffer<float> folded_units_;    // [pairs, groups, group]
  AlignedBuffer<float> folded_offsets_;  // [pairs, groups, group]
  AlignedBuffer<float> scan_m_;          // [pairs, group, scan_run_stride]
  AlignedBuffer<float> page_sums_;       // [pairs, group, page_stride]
  // Estimated mass, the largest of the group's heads; -1 for pages that do not
  // stand to be chosen: [pairs, page_stride].
  AlignedBuffer<float> mass_;
  std::vector<uint16_t> bins_;          // [pairs, page_stride]
  std::vector<uint32_t> n_in_bin_;      // [pairs, kBins]
  std::vector<uint32_t> n_above_;       // [pairs] scratch of Share
  std::vector<uint32_t> n_chosen_;      // [pairs]
  std::vector<ChosenColdPage> chosen_;  // [parts, KV heads * page_stride]
  std::vector<uint32_t> n_rest_;        // [pairs]
  std::vector<ChosenColdPage> rest_;    // as chosen_, where it is sampled
  std::vector<double> gaps_;            // [pairs]
  // Lanes of a part whose masses are known, runs of a pair that are read; 0
  // between layers.
  std::vector<std::atomic<uint32_t>> n_lanes_done_;  // [parts]
  std::vector<std::atomic<uint32_t>> n_runs_done_;   // [pairs]
  AlignedBuffer<float> run_m_;  // [pairs, run_stride, group]
  AlignedBuffer<float> run_l_;  // [pairs, run_stride, group]
  AlignedBuffer<float> run_o_;  // [pairs, run_stride, group, head_dim]
};

}  // namespace lkv
