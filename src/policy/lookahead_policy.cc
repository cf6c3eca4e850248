#include "policy/lookahead_policy.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "policy/non_negative_f16.h"
#include "policy/scorer.h"

namespace lkv {
LookaheadPolicy::LookaheadPolicy(const CacheOptions& options,
                                 const PolicyCapacity& capacity,
                                 const KernelTable& kernels)
    : score_(options.score),
      decay_(static_cast<float>(options.temporal_decay)),
      pages_(capacity),
      predictor_({.prediction_steps = options.prediction_steps,
                  .ends = ProtectedEndsOf(options)},
                 capacity, kernels),
      value_stat_(capacity, kPageTokens) {}

size_t LookaheadPolicy::bytes_per_page() const {
  return LanePages::kBytesPerPage + EmaPredictor::kBytesPerPage +
         kPageTokens * sizeof(uint16_t);
}

void LookaheadPolicy::AddPage(uint32_t lane, uint32_t first_pos) {
  pages_.AddPage(lane, first_pos);
}

void LookaheadPolicy::AddSlots(uint32_t lane, uint32_t n,
                               const float* value_norms,
                               const float* value_distances) {
  uint32_t first_slot = pages_.AddSlots(lane, n);
  predictor_.AddSlots(lane, first_slot, n);
  const float* stats =
      score_ == ScoreName::kOutputError ? value_distances : value_norms;
  uint16_t* out = value_stat_.of(lane) + first_slot;
  for (uint32_t i = 0; i < n; ++i) {
    out[i] = F32ToF16(std::min(stats[i], kMaxF16));
  }
}

void LookaheadPolicy::Observe(const LaneObservation& observation) {
  pages_.CheckSees(observation);
  predictor_.Observe(observation.lane, observation.mass_max,
                     observation.n_slots, observation.tokens_since);
}

void LookaheadPolicy::ScoreSlots(uint32_t lane, uint32_t /*now_pos*/,
                                 const SlotScores& out) const {
  const uint32_t n_slots = pages_.n_slots(lane);
  CHECK(out.attention.size() == n_slots && out.score.size() == n_slots);
  predictor_.Predict(lane, 0, out.attention);
  WidenNonNegativeF16(value_stat_.of(lane), n_slots, out.score.data());
  const float* attention = out.attention.data();
  float* score = out.score.data();
  if (score_ == ScoreName::kOutputError) {
    for (uint32_t i = 0; i < n_slots; ++i) {
      score[i] = OutputErrorScore(attention[i], score[i]);
    }
    return;
  }
  // The forecast is flat: one step stands for all.
  for (uint32_t i = 0; i < n_slots; ++i) {
    score[i] = ValueNormScore(score[i],
                              std::span<const float>(&attention[i], 1), decay_);
  }
}

void LookaheadPolicy::MoveSlots(uint32_t lane, const SlotMoves& moves) {
  predictor_.MoveSlots(lane, moves);
  value_stat_.MoveSlots(lane, moves);
}

void LookaheadPolicy::RemovePage(uint32_t lane, uint32_t index) {
  uint32_t n_pages = pages_.RemovePage(lane, index);
  predictor_.RemovePage(lane, index, n_pages);
  value_stat_.RemovePage(lane, index, n_pages);
}

}  // namespace lkv
