// Which queries of a step are watched: all of a decode step; in prefill every
// 8th by absolute position and the last 32 of the chunk.
//
// Watching one query costs a pass over its probabilities, 1 % of attention
// when decoding. In prefill every 8th query carries nearly the same evidence
// at an eighth of the price, and the newest 32 predict what comes next best.
// (Plain sums of attention lose by it, a fifth of the KL of `observed`:
// docs/experiments.md, "Beside kvpress".)
#pragma once

#include <cstdint>

namespace lkv {

inline constexpr uint32_t kObserveEvery = 8;
inline constexpr uint32_t kObserveLast = 32;

// Whether the query at position `pos` is watched in a step that holds the
// positions up to `end_pos` (exclusive) of its sequence.
inline constexpr bool IsObserved(uint32_t pos, uint32_t end_pos) {
  return pos % kObserveEvery == kObserveEvery - 1 ||
         pos + kObserveLast >= end_pos;
}

}  // namespace lkv
