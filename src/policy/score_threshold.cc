#include "policy/score_threshold.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace lkv {

ScoreThreshold::ScoreThreshold(double percentile, uint32_t n_lanes)
    : percentile_(percentile),
      value_(n_lanes, -std::numeric_limits<float>::infinity()),
      frozen_(n_lanes, 0) {
  CHECK(percentile >= 0 && percentile <= 100);
}

void ScoreThreshold::Thaw() {
  std::fill(value_.begin(), value_.end(),
            -std::numeric_limits<float>::infinity());
  std::fill(frozen_.begin(), frozen_.end(), uint8_t{0});
}

void ScoreThreshold::Freeze(uint32_t lane, std::span<const float> score,
                            std::span<const uint8_t> is_protected,
                            std::span<float> scratch) {
  CHECK(score.size() == is_protected.size() && scratch.size() >= score.size());
  if (frozen(lane)) return;
  uint32_t n = 0;
  for (size_t p = 0; p < score.size(); ++p) {
    if (is_protected[p] == 0) scratch[n++] = score[p];
  }
  if (n < kMinPages) return;
  auto rank = static_cast<uint32_t>(std::floor(percentile_ / 100 * n));
  if (rank == n) {
    // All of them lie below: the next float above the highest score.
    float highest = *std::max_element(scratch.begin(), scratch.begin() + n);
    value_[lane] =
        std::nextafter(highest, std::numeric_limits<float>::infinity());
  } else {
    std::nth_element(scratch.begin(), scratch.begin() + rank,
                     scratch.begin() + n);
    value_[lane] = scratch[rank];
  }
  frozen_[lane] = 1;
}

}  // namespace lkv
