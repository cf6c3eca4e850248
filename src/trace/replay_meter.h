// Adds up what a cache had of the attention of a recorded lane.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/lane_trace.h"
#include "trace/replay.h"

namespace lkv {

class ReplayMeter {
 public:
  // Both outlive it.
  ReplayMeter(const LaneTrace& trace, const ReplayOptions& options)
      : trace_(trace), options_(options), scratch_(trace.n_steps()) {}

  // Whether this step counts: its text is longer than what may stay (before, a
  // cache has everything), and its attention is recorded by the unit.
  bool Measures(uint32_t step) const {
    return PagesOf(step + 1) > options_.capacity_pages &&
           (options_.unit == EvictionUnit::kPage || HasTokenRows(step));
  }
  // is_resident: [step + 1] or more, by position. Requires Measures(step).
  void Measure(uint32_t step, const std::vector<uint8_t>& is_resident);
  const ReplaySums& sums() const { return sums_; }

 private:
  void MeasureNeeded(uint32_t step, const std::vector<uint8_t>& is_resident);

  const LaneTrace& trace_;
  const ReplayOptions& options_;
  std::vector<float> scratch_;
  ReplaySums sums_;
};

}  // namespace lkv
