#include "policy/lookahead_policy.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "policy/non_negative_f16.h"
#include "policy/page_totals.h"
#include "policy/scorer.h"

namespace lkv {
namespace {

// Largest finite half: a larger value statistic still wins every comparison.
constexpr float kMaxF16 = 65504;

// Slots scored at a time: four pages, long enough for vector loops.
constexpr uint32_t kBlockSlots = 4 * kPageTokens;

}  // namespace

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

void LookaheadPolicy::ScorePages(uint32_t lane, uint32_t /*now_pos*/,
                                 const PageScores& out) const {
  const uint32_t n_pages = pages_.n_pages(lane);
  const uint32_t n_slots = pages_.n_slots(lane);
  CHECK(out.attention.size() == n_pages && out.score.size() == n_pages);
  float attention[kBlockSlots];
  float value_stat[kBlockSlots];
  float score[kBlockSlots];
  for (uint32_t first = 0; first < n_pages * kPageTokens;
       first += kBlockSlots) {
    const uint32_t n =
        std::min(kBlockSlots, n_slots - std::min(n_slots, first));
    predictor_.Predict(lane, first, std::span(attention, n));
    WidenNonNegativeF16(value_stat_.of(lane) + first, n, value_stat);
    ScoreSlots(attention, value_stat, n, score);
    // The open page counts what it holds.
    std::fill(attention + n, attention + kBlockSlots, 0.0f);
    std::fill(score + n, score + kBlockSlots, 0.0f);
    const uint32_t first_page = first / kPageTokens;
    const uint32_t last_page =
        std::min(n_pages, first_page + kBlockSlots / kPageTokens);
    for (uint32_t p = first_page; p < last_page; ++p) {
      out.attention[p] = MaxOfPage(attention + p * kPageTokens - first);
      out.score[p] = MaxOfPage(score + p * kPageTokens - first);
    }
  }
}

void LookaheadPolicy::ScoreSlots(const float* attention,
                                 const float* value_stat, uint32_t n,
                                 float* score) const {
  if (score_ == ScoreName::kOutputError) {
    for (uint32_t i = 0; i < n; ++i) {
      score[i] = OutputErrorScore(attention[i], value_stat[i]);
    }
    return;
  }
  // The forecast is flat: one step stands for all.
  for (uint32_t i = 0; i < n; ++i) {
    score[i] = ValueNormScore(value_stat[i],
                              std::span<const float>(&attention[i], 1), decay_);
  }
}

void LookaheadPolicy::RemovePage(uint32_t lane, uint32_t index) {
  uint32_t n_pages = pages_.RemovePage(lane, index);
  predictor_.RemovePage(lane, index, n_pages);
  value_stat_.RemovePage(lane, index, n_pages);
}

}  // namespace lkv
