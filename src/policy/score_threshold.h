// ScoreThreshold: turns "evict what scores in the lowest p percent" into an
// absolute score, once per lane, at the end of the warm-up.
//
// Frozen, because a percentile that moves with the cache evicts for ever: after
// each eviction there is a new lowest half. Per lane, because scores of lanes
// differ by the size of their values, not by their worth. The percentile makes
// one setting fit every model.
//
// Thread rule: calls for different lanes may run at the same time. Allocates in
// the constructor only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/state_stream.h"

namespace lkv {

class ScoreThreshold {
 public:
  // A percentile of fewer pages says nothing; the lane waits for its next turn.
  static constexpr uint32_t kMinPages = 8;

  // Requires 0 <= percentile <= 100.
  ScoreThreshold(double percentile, uint32_t n_lanes);

  bool frozen(uint32_t lane) const { return frozen_[lane] != 0; }
  // Scores mean something else from here on: every lane freezes anew.
  void Thaw();
  // The absolute score; below every score (nothing is evicted by it) until the
  // lane is frozen.
  float value(uint32_t lane) const { return value_[lane]; }

  // Fixes the lane's threshold from the scores of its contestable pages unless
  // it is frozen already or has fewer than kMinPages of them: nearest rank, so
  // exactly floor(percentile/100 * n) distinct scores lie below. `scratch` has
  // room for all pages. O(pages).
  void Freeze(uint32_t lane, std::span<const float> score,
              std::span<const uint8_t> is_protected, std::span<float> scratch);

  void ExchangeState(StateStream& stream) {
    stream.Exchange(value_);
    stream.Exchange(frozen_);
  }

 private:
  double percentile_;
  std::vector<float> value_;     // [n_lanes]
  std::vector<uint8_t> frozen_;  // [n_lanes]
};

}  // namespace lkv
