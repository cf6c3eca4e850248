#include "trace/recording_policy.h"

#include "base/check.h"

namespace lkv {

RecordingPolicy::RecordingPolicy(const TraceInfo& info, uint32_t n_tokens,
                                 TraceWriter& writer)
    : n_tokens_(n_tokens),
      writer_(writer),
      trace_lane_(info.shape.n_lanes(), -1),
      new_slots_(info.shape.n_lanes()) {
  for (uint32_t lane = 0; lane < info.n_lanes(); ++lane) {
    trace_lane_[info.ModelLane(lane)] = static_cast<int>(lane);
  }
}

std::unique_ptr<EvictionPolicy> RecordingPolicy::Clone() const {
  CHECK(false);
  return nullptr;
}

void RecordingPolicy::AddSlots(uint32_t lane, uint32_t n,
                               const float* value_norms,
                               const float* value_distances) {
  if (writer_.n_steps() == n_tokens_) return;
  CHECK(n == 1);
  new_slots_[lane] = {value_norms[0], value_distances[0]};
}

void RecordingPolicy::Observe(const LaneObservation& observation) {
  const uint32_t lane = observation.lane;
  if (trace_lane_[lane] < 0 || observation.query_pos >= n_tokens_) return;
  CHECK(observation.n_slots == observation.query_pos + 1);
  writer_.AddStep(static_cast<uint32_t>(trace_lane_[lane]),
                  {.value_norm = new_slots_[lane].value_norm,
                   .value_distance = new_slots_[lane].value_distance,
                   .mass_max = observation.mass_max,
                   .mass_mean = observation.mass_mean});
}

void RecordingPolicy::ObserveExpectation(uint32_t lane,
                                         std::span<const float> attention) {
  if (trace_lane_[lane] < 0 || writer_.n_steps() == n_tokens_) return;
  writer_.AddExpectation(static_cast<uint32_t>(trace_lane_[lane]), attention);
}

// Asked only where something must leave.
void RecordingPolicy::ScoreSlots(uint32_t, uint32_t, const SlotScores&) const {
  CHECK(false);
}
void RecordingPolicy::MoveSlots(uint32_t, const SlotMoves&) { CHECK(false); }

void RecordingPolicy::RemovePage(uint32_t, uint32_t) { CHECK(false); }

}  // namespace lkv
