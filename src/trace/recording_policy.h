// RecordingPolicy: writes down what the cache shows a policy.
//
// Given to a cache that keeps everything, it makes a trace of what any policy
// would have been told: the same calls, the same numbers. Every token is one
// step, so the text is fed token by token; what comes behind the text is not
// recorded.
#pragma once

#include <vector>

#include "policy/eviction_policy.h"
#include "trace/trace_writer.h"

namespace lkv {

class RecordingPolicy final : public EvictionPolicy {
 public:
  // Records a text of n_tokens. `writer` must outlive it. Whoever drives the
  // cache calls writer.FinishStep() after every step of the text.
  RecordingPolicy(const TraceInfo& info, uint32_t n_tokens,
                  TraceWriter& writer);

  std::string_view name() const override { return "recording"; }
  // Two texts in one trace make no sense.
  std::unique_ptr<EvictionPolicy> Clone() const override;
  size_t bytes_per_page() const override { return 0; }
  void AddPage(uint32_t /*lane*/, uint32_t /*first_pos*/) override {}
  void AddSlots(uint32_t lane, uint32_t n, const float* value_norms,
                const float* value_distances) override;
  void Observe(const LaneObservation& observation) override;
  bool wants_expectation() const override { return true; }
  void ObserveExpectation(uint32_t lane,
                          std::span<const float> attention) override;
  void ScoreSlots(uint32_t lane, uint32_t now_pos,
                  const SlotScores& out) const override;
  void MoveSlots(uint32_t lane, const SlotMoves& moves) override;
  void RemovePage(uint32_t lane, uint32_t index) override;

 private:
  struct NewSlot {
    float value_norm = 0;
    float value_distance = 0;
  };

  const uint32_t n_tokens_;
  TraceWriter& writer_;
  std::vector<int> trace_lane_;     // [n_lanes of the model], -1: not recorded
  std::vector<NewSlot> new_slots_;  // [n_lanes of the model]
};

}  // namespace lkv
