// Heavy hitters: the tokens that one query really used. Under dense attention
// every token is touched at every step, so "use" needs a definition: members of
// the smallest set that covers most of the mass.
#pragma once

#include <cstdint>
#include <span>

namespace lkv {

// The smallest set whose masses sum to at least share * (sum of all masses),
// cut at max_count members: every mass above `threshold` and, of those equal to
// it, the first n_at_threshold.
struct HeavyHitters {
  float threshold = 0;
  uint32_t n_at_threshold = 0;
  uint32_t n_above = 0;

  uint32_t count() const { return n_above + n_at_threshold; }
};

// What "most" is for the baselines that count uses and for hit rates.
inline constexpr double kUsedMassShare = 0.9;

// Masses are >= 0 and finite, 0 < share < 1. A set of zero mass, or
// max_count 0, has no heavy hitters. Requires scratch.size() >= mass.size().
// Pure; O(n).
HeavyHitters FindHeavyHitters(std::span<const float> mass, double share,
                              uint32_t max_count, std::span<float> scratch);

}  // namespace lkv
