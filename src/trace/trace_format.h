// An attention trace: what every query of a text paid to the tokens before it,
// in every recorded lane of the model, with nothing evicted. Policies are
// replayed on it and predictors are trained on it.
//
// Step t is the query of position t. What replays by what:
//   pages    every step: sums over the page of the group maxima and of the
//            group means, and its largest group maximum
//   tokens   group maximum and mean at the steps where HasTokenRows holds, one
//            in 8 as the cache observes them in prefill, and 16 in a row of 512
//   slots    once per token: |v| and |v - mean output of the lane|
//   expected at the end of every whole segment: what the queries to come were
//            expected to pay (EvictionPolicy::ObserveExpectation), nothing for
//            the first kTraceSinkTokens
// With a second reading, the text once more behind itself, also once per token:
// the most attention (group maximum) that any query of it paid.
//
// File, little-endian, all blocks checksummed:
//   info block | segment 0: a block per lane | segment 1 | ... | second
//   reading: none or a block per lane | index block | end mark
// A segment holds kSegmentSteps steps (the last one fewer). A lane block holds
// a record per step t, with P = PagesOf(t + 1):
//   f16 value_norm, value_distance; f16 page_max[P], page_mean[P];
//   f8 page_peak[P]; with token rows: f8 token_max[t + 1], token_mean[t + 1]
// and behind the records of a whole segment: f8 expected[tokens so far].
// A block of the second reading: f8 max[n_steps].
// 4,096 tokens of 90 lanes take 476 MB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/types.h"
#include "policy/eviction_policy.h"

namespace lkv {

inline constexpr uint32_t kTraceVersion = 3;
inline constexpr uint32_t kSegmentSteps = 64;
// A whole segment ends with an expectation, and nothing else does.
static_assert(kSegmentSteps == kExpectEveryTokens);
// Sinks while a trace is recorded: the default of the key sink_tokens.
inline constexpr uint32_t kTraceSinkTokens = 4;
// Longest text of a trace, so that a damaged file cannot ask for all memory.
inline constexpr uint32_t kMaxTraceSteps = 1u << 20;

// Whether step `step` has token rows.
inline constexpr bool HasTokenRows(uint32_t step) {
  return step % 8 == 7 || step % 512 < 16;
}

// Bytes of the record of one step of one lane.
inline constexpr size_t StepRecordBytes(uint32_t step) {
  const size_t n_pages = PagesOf(size_t{step} + 1);
  const size_t n_tokens = size_t{step} + 1;
  return 2 * sizeof(uint16_t) + n_pages * (2 * sizeof(uint16_t) + 1) +
         (HasTokenRows(step) ? 2 * n_tokens : 0);
}

// Whether an expectation stands behind step `step`.
inline constexpr bool HasExpectation(uint32_t step) {
  return (step + 1) % kExpectEveryTokens == 0;
}

// Of n_steps steps from `first` on, with the expectations among them.
inline constexpr uint64_t StepRecordsBytes(uint32_t first, uint32_t n_steps) {
  uint64_t n_bytes = 0;
  for (uint32_t step = first; step < first + n_steps; ++step) {
    n_bytes += StepRecordBytes(step);
    if (HasExpectation(step)) n_bytes += step + 1;
  }
  return n_bytes;
}

// What was recorded. A trace belongs to one model and one text.
struct TraceInfo {
  KvShape shape;                 // of the model
  std::vector<uint32_t> layers;  // those recorded, ascending
  std::string model;             // fingerprint of its weights
  std::string text;              // where the text is from

  uint32_t n_lanes() const {
    return static_cast<uint32_t>(layers.size()) * shape.n_kv_heads;
  }
  // Which of the model's lanes lane `lane` of the trace is.
  uint32_t ModelLane(uint32_t lane) const {
    return shape.LaneOf(layers[lane / shape.n_kv_heads],
                        lane % shape.n_kv_heads);
  }
};

}  // namespace lkv
