#include "policy/lookahead_policy.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/check.h"
#include "policy/non_negative_f16.h"
#include "policy/scorer.h"

namespace lkv {
namespace {

// Largest finite half: a larger value statistic still wins every comparison.
constexpr float kMaxF16 = 65504;

}  // namespace

LookaheadPolicy::LookaheadPolicy(const CacheOptions& options,
                                 const PolicyCapacity& capacity)
    : score_(options.score),
      decay_(static_cast<float>(options.temporal_decay)),
      pages_(capacity),
      predictor_({.prediction_steps = options.prediction_steps,
                  .ends = ProtectedEndsOf(options)},
                 capacity),
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

void LookaheadPolicy::ScorePages(uint32_t lane, uint32_t /*now_pos*/,
                                 const PageScores& out) const {
  const uint32_t n_pages = pages_.n_pages(lane);
  CHECK(out.attention.size() == n_pages && out.score.size() == n_pages);
  for (uint32_t p = 0; p < n_pages; ++p) {
    const uint32_t first_slot = p * kPageTokens;
    const uint32_t n_slots = pages_.slots_in_page(lane, p);
    // Whole pages are computed, so that the loops are vector code; slots not
    // written yet hold zeros or what an older page left, and are not summed.
    float attention[kPageTokens];
    float value_stat[kPageTokens];
    float score[kPageTokens];
    predictor_.Predict(lane, first_slot, attention);
    WidenNonNegativeF16(value_stat_.of(lane) + first_slot, kPageTokens,
                        value_stat);
    if (score_ == ScoreName::kOutputError) {
      for (uint32_t i = 0; i < kPageTokens; ++i) {
        score[i] = OutputErrorScore(attention[i], value_stat[i]);
      }
    } else {
      // The forecast is flat: one step stands for all.
      for (uint32_t i = 0; i < kPageTokens; ++i) {
        score[i] = ValueNormScore(
            value_stat[i], std::span<const float>(&attention[i], 1), decay_);
      }
    }
    out.attention[p] = std::accumulate(attention, attention + n_slots, 0.0f);
    out.score[p] = std::accumulate(score, score + n_slots, 0.0f);
  }
}

void LookaheadPolicy::RemovePage(uint32_t lane, uint32_t index) {
  uint32_t n_pages = pages_.RemovePage(lane, index);
  predictor_.RemovePage(lane, index, n_pages);
  value_stat_.RemovePage(lane, index, n_pages);
}

}  // namespace lkv
