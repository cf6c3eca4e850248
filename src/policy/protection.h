// Which cached tokens may leave: everything but sinks, the newest tokens, the
// open page and pinned text. Every policy protects the same. (A lane of a dense
// layer never evicts at all; its caller does not ask.)
//
// A lane's slots are in position order, its sinks never leave and its newest
// tokens are contiguous, so the contestable tokens of a lane are one range of
// slots. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "base/types.h"
#include "lookaheadkv/options.h"

namespace lkv {

// A half-open range of slots, or of pages, of one lane; empty when begin ==
// end.
struct LaneRange {
  uint32_t begin = 0;
  uint32_t end = 0;

  uint32_t count() const { return end - begin; }
};

// The part of every lane's text that is protected by its place alone.
struct ProtectedEnds {
  uint32_t sink_tokens = 4;
  uint32_t recent_tokens = 128;
};

inline ProtectedEnds ProtectedEndsOf(const CacheOptions& options) {
  return {.sink_tokens = options.sink_tokens,
          .recent_tokens = options.recent_tokens};
}

// Contestable slots of a lane of n_slots slots. O(1).
LaneRange ContestableSlots(const ProtectedEnds& ends, uint32_t n_slots);

// Pages of which no slot is a sink, recent or missing. O(1).
LaneRange ContestablePages(const ProtectedEnds& ends, uint32_t n_slots);

// Attention mass on the contestable slots of one lane; mass: [n_slots].
// O(slots), 0.3 us for 2048.
float ContestableMass(const ProtectedEnds& ends, const float* mass,
                      uint32_t n_slots);

// Sets is_protected[p] to 1 for pages that must not leave and to 0 for the
// rest. first_pos: [n_pages] first position of each page, ascending; all pages
// but the last are full; pages past n_slots (opened ahead) count as open.
// pinned: any order. Requires is_protected.size() == first_pos.size().
// O(pages * pinned ranges).
void MarkProtectedPages(const ProtectedEnds& ends,
                        std::span<const PositionRange> pinned,
                        std::span<const uint32_t> first_pos, uint32_t n_slots,
                        std::span<uint8_t> is_protected);

}  // namespace lkv
