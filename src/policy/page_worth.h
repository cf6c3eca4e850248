// What pages are worth, from what their slots are.
#pragma once

#include <cstdint>
#include <span>

#include "policy/eviction_policy.h"

namespace lkv {

// Page worth; higher = keep. [n_pages] each.
struct PageScores {
  std::span<float> attention;
  std::span<float> score;
};

// Scores the slots of a lane, slots.score.size() of them, and its pages. The
// last page may be open: it counts what it holds. O(slots of the lane).
void ScorePages(const EvictionPolicy& policy, uint32_t lane, uint32_t now_pos,
                const SlotScores& slots, const PageScores& pages);

}  // namespace lkv
