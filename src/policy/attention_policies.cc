#include "policy/attention_policies.h"

#include <algorithm>

namespace lkv {

void H2oPolicy::Observe(const LaneObservation& observation) {
  pages_.CheckSees(observation);
  const auto weight = static_cast<float>(observation.tokens_since);
  float* sum = stat_.of(observation.lane);
  for (uint32_t i = 0; i < observation.n_slots; ++i) {
    sum[i] += weight * observation.mass_max[i];
  }
}

void ObservedPolicy::AddSlots(uint32_t lane, uint32_t n,
                              const float* value_norms,
                              const float* value_distances) {
  const uint32_t first_slot = pages_.n_slots(lane);
  H2oPolicy::AddSlots(lane, n, value_norms, value_distances);
  uint32_t* birth_pos = birth_pos_.of(lane);
  for (uint32_t slot = first_slot; slot < first_slot + n; ++slot) {
    birth_pos[slot] = pages_.PositionWritten(lane, slot);
  }
}

void ObservedPolicy::ScoreSlots(uint32_t lane, uint32_t now_pos,
                                const SlotScores& out) const {
  H2oPolicy::ScoreSlots(lane, now_pos, out);
  const uint32_t* birth_pos = birth_pos_.of(lane);
  for (uint32_t i = 0; i < pages_.n_slots(lane); ++i) {
    const uint32_t age = std::max(now_pos, birth_pos[i] + 1) - birth_pos[i];
    out.score[i] /= static_cast<float>(age);
    out.attention[i] = out.score[i];
  }
}

void ObservedPolicy::MoveSlots(uint32_t lane, const SlotMoves& moves) {
  H2oPolicy::MoveSlots(lane, moves);
  birth_pos_.MoveSlots(lane, moves);
}

void ObservedPolicy::RemovePage(uint32_t lane, uint32_t index) {
  birth_pos_.RemovePage(lane, index, pages_.n_pages(lane));
  H2oPolicy::RemovePage(lane, index);
}

void TovaPolicy::Observe(const LaneObservation& observation) {
  pages_.CheckSees(observation);
  std::copy_n(observation.mass_max, observation.n_slots,
              stat_.of(observation.lane));
}

}  // namespace lkv
