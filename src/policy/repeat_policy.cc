#include "policy/repeat_policy.h"

#include "base/check.h"

namespace lkv {

void RepeatPolicy::AddSlots(uint32_t lane, uint32_t n,
                            const float* /*value_norms*/,
                            const float* /*value_distances*/) {
  const uint32_t first_slot = pages_.AddSlots(lane, n);
  uint32_t* pos = pos_.of(lane);
  for (uint32_t slot = first_slot; slot < first_slot + n; ++slot) {
    pos[slot] = pages_.PositionWritten(lane, slot);
  }
}

void RepeatPolicy::ScoreSlots(uint32_t lane, uint32_t /*now_pos*/,
                              const SlotScores& out) const {
  constexpr float kAboveAll = 2;  // attention ends at 1
  CHECK(out.score.size() == pages_.n_slots(lane));
  const uint32_t* pos = pos_.of(lane);
  const std::span<const float> scores = scores_->of(lane);
  for (size_t i = 0; i < out.score.size(); ++i) {
    out.score[i] = pos[i] < scores.size() ? scores[pos[i]] : kAboveAll;
    out.attention[i] = out.score[i];
  }
}

}  // namespace lkv
