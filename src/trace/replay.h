// Replay: which attention a policy would have kept, on a recorded lane.
//
// Open loop: every policy sees the same text and the same attention, whatever
// it evicted; but of each step it may observe only what is resident, with the
// weights of that renormalised to 1. One page of room is made when a new one is
// opened: by evicting the page that the policy values least, or by repacking,
// so that single tokens leave, as the cache does it. The same protection,
// capacity and arrival for all.
//
// What is measured, over the steps whose text no longer fits (as in
// lookaheadkv/hit_rates.h, but contestable are the tokens of whole pages that
// are, and where nothing was measured a hit rate is 0):
//   mass   pages, every step; where tokens leave, tokens at the steps with
//          token rows: resident contestable mass / contestable mass
//   raw    likewise of all mass, sinks and newest tokens included
//   topk   tokens, steps with token rows: members of the smallest set covering
//          90 % of the contestable mass, at most as many as may stay, that are
//          resident: mean over the steps
//   byte   the same, of all members of all steps: bytes read from fast memory /
//          bytes needed
//
// Pure. Cost: O(steps * pages), 10 ms for 4,096 steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "policy/eviction_policy.h"
#include "policy/protection.h"
#include "trace/lane_trace.h"

namespace lkv {

struct ReplayOptions {
  uint32_t capacity_pages = 0;  // of the lane, protected ones included
  ProtectedEnds ends = {};
  EvictionUnit unit = EvictionUnit::kPage;
};

// Tokens that leave together.
inline constexpr uint32_t UnitTokens(EvictionUnit unit) {
  return unit == EvictionUnit::kPage ? kPageTokens : 1;
}

// Sums over the measured steps of lanes and texts; what is divided stays apart,
// so that sums can be added.
struct ReplaySums {
  double contestable = 0, contestable_hit = 0;
  double all = 0, all_hit = 0;
  double topk_ratios = 0;
  uint64_t n_topk_ratios = 0;
  uint64_t n_needed = 0, n_needed_hit = 0;  // tokens

  ReplaySums& operator+=(const ReplaySums& other);

  // 0 where nothing was measured.
  double mass_hit() const;
  double raw_hit() const;
  double topk_hit() const;
  double byte_hit() const;
};

// A policy for one lane (lane 0).
using LanePolicyFactory = std::function<std::unique_ptr<EvictionPolicy>(
    const PolicyCapacity& capacity)>;

// Requires capacity_pages > the pages that `ends` protect at any moment
// (MinReplayPages).
ReplaySums ReplayLane(const LaneTrace& trace, const ReplayOptions& options,
                      const LanePolicyFactory& make_policy);

// Pages that protection alone can hold, and one to be opened.
uint32_t MinReplayPages(const ProtectedEnds& ends);

}  // namespace lkv
