// Replay: which attention a policy would have kept, on a recorded lane.
//
// Open loop: every policy sees the same text and the same attention, whatever
// it evicted; but of each step it may observe only what is resident, with the
// weights of that renormalised to 1. One page of room is made by evicting the
// page that the policy values least, when a new one is opened: the same
// protection, capacity and arrival for all.
//
// What is measured, over the steps whose text no longer fits (definitions as
// in lookaheadkv/hit_rates.h):
//   mass   pages, every step: resident contestable mass / contestable mass
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
};

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

// What a cache reaches that may bring back any page before each choice, at no
// cost, and makes one every `horizon` steps knowing the attention of the steps
// until the next: the most mass of those. Horizon 1 bounds the mass hit of
// every policy and cache of the same capacity.
ReplaySums ReplayWithReturn(const LaneTrace& trace,
                            const ReplayOptions& options, uint32_t horizon);

// The policy that evicts the page whose future attention (group mean, all
// steps to come) is least: an oracle, though greedy. `trace` must outlive the
// policies made.
LanePolicyFactory FutureOracle(const LaneTrace& trace);

}  // namespace lkv
