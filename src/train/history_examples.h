// Examples for the history network: what the cache would have remembered of a
// token (policy/slot_history.h, the routine that serves), and the most
// attention that the token got when the text was read a second time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernel_table.h"
#include "policy/ema_predictor.h"
#include "trace/lane_trace.h"

namespace lkv {

struct HistoryExamples {
  // Of one lane. inputs: [size][HistoryNetwork::kInputs], target: [size] log2.
  struct Lane {
    std::vector<float> inputs;
    std::vector<float> target;

    size_t size() const { return target.size(); }
  };

  explicit HistoryExamples(uint32_t n_lanes) : lanes(n_lanes) {}
  uint64_t size() const {
    uint64_t n = 0;
    for (const Lane& lane : lanes) n += lane.size();
    return n;
  }

  std::vector<Lane> lanes;  // of the model
};

// Adds examples of one lane: at every 512th token and at the end of the text,
// of up to 512 tokens that might leave then, evenly spaced. Replays what the
// cache observes in prefill, one query in 8. `options` are those of the moving
// average, as in serving. Requires trace.reread(). 20 ms for
// 4,096 steps.
void AddExamples(const LaneTrace& trace, const EmaPredictor::Options& options,
                 const KernelTable& kernels, HistoryExamples::Lane& lane);

}  // namespace lkv
