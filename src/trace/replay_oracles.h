// Oracles: how much attention could have been kept by who knows the future.
//
// By page or by token, as the replay's unit says (trace/replay.h); the future
// of tokens is known where the trace has token rows. Pure.
#pragma once

#include <cstdint>

#include "trace/lane_trace.h"
#include "trace/replay.h"

namespace lkv {

// What a cache reaches that may bring back anything before each choice, at no
// cost, and makes one every `horizon` steps knowing the attention of the steps
// until the next: the most mass of those. Horizon 1 bounds the mass hit of
// every policy and cache of the same capacity.
ReplaySums ReplayWithReturn(const LaneTrace& trace,
                            const ReplayOptions& options, uint32_t horizon);

// What a cache reaches that evicts for good whatever gets the least attention
// (group mean) in all steps to come, though greedily: a page, or a page's worth
// of single tokens wherever they stand.
ReplaySums ReplayFuture(const LaneTrace& trace, const ReplayOptions& options);

// The policy that makes those choices by page. `trace` must outlive the
// policies made.
LanePolicyFactory FutureOracle(const LaneTrace& trace);

}  // namespace lkv
