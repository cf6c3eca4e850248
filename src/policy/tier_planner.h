// TierPlanner: which pages of one lane leave now.
//
// Works on page scores alone; what a page holds, where it goes and what its
// neighbours in other lanes do is the caller's business. Pure, thread-safe,
// allocates nothing: the caller brings scratch.
#pragma once

#include <cstdint>
#include <span>

#include "lookaheadkv/options.h"
#include "policy/eviction_policy.h"

namespace lkv {

struct LanePlanInput {
  // [n_pages], see protection.h; empty: nothing is protected.
  std::span<const uint8_t> is_protected;
  std::span<const float> attention;  // [n_pages], read when two_stage
  std::span<const float> score;      // [n_pages], no NaN; higher = keep
  // Pages that must go so that window and budget hold: the hard cap.
  uint32_t n_leave = 0;
  // At most so many pages leave now; the rest waits for the lane's next turn.
  uint32_t max_moves = 0;
  // Half of the contestable pages that stay (rounded up) are the best by
  // `attention`, the others the best by `score` (after CriticalKV,
  // arXiv 2502.03805: attention alone loses what is costly to lose, the loss
  // estimate alone loses what is read most).
  bool two_stage = false;

  // kScoreThreshold: after the n_leave pages, pages that score below
  // `threshold` leave too, lowest first, while more than `floor_pages` pages
  // (protected ones included) stay. kSizeAware ignores both. Pages of one lane
  // are of one size, so "lowest score per byte" is the lowest score.
  EvictionRule rule = EvictionRule::kSizeAware;
  float threshold = 0;
  uint32_t floor_pages = 0;
};

// Writes the pages that leave to the front of `victims` and returns how many:
// min(wanted, contestable pages, max_moves). Of the wanted ones the lowest
// scores go first when max_moves cuts; equal scores: the older page leaves.
// Indices come in descending order, so that removing one does not renumber the
// next. Requires victims.size() >= n_pages; contents past the count are
// scratch. O(pages log pages); 0.4 us for 128 pages.
uint32_t ChooseVictims(const LanePlanInput& in, std::span<uint32_t> victims);

}  // namespace lkv
