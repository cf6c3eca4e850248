#include "policy/lookahead_policy.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/linear_log2.h"
#include "base/unsigned_f8.h"
#include "policy/scorer.h"

namespace lkv {
namespace {

// Norms of values are between a hundredth and some hundreds: this moves them
// into the range of the 8-bit floats.
constexpr float kValueScale = 0x1p-16f;

}  // namespace

LookaheadPolicy::LookaheadPolicy(const CacheOptions& options,
                                 const PolicyCapacity& capacity,
                                 const KernelTable& kernels,
                                 const PredictorView& predictor)
    : score_(options.score),
      decay_(static_cast<float>(options.temporal_decay)),
      pages_(capacity),
      kernels_(kernels),
      predictor_(predictor),
      history_({.prediction_steps = options.prediction_steps,
                .ends = ProtectedEndsOf(options)},
               capacity, kernels),
      value_stat_(capacity, kPageTokens) {
  CHECK(predictor.network == nullptr ||
        predictor.first_lane + capacity.n_lanes <=
            predictor.network->n_lanes());
}

size_t LookaheadPolicy::bytes_per_page() const {
  return LanePages::kBytesPerPage + SlotHistory::kBytesPerPage +
         kPageTokens * sizeof(uint8_t);
}

void LookaheadPolicy::AddPage(uint32_t lane, uint32_t first_pos) {
  pages_.AddPage(lane, first_pos);
}

void LookaheadPolicy::AddSlots(uint32_t lane, uint32_t n,
                               const float* value_norms,
                               const float* value_distances) {
  uint32_t first_slot = pages_.AddSlots(lane, n);
  history_.AddSlots(lane, first_slot, n);
  const float* stats =
      score_ == ScoreName::kOutputError ? value_distances : value_norms;
  uint8_t* out = value_stat_.of(lane) + first_slot;
  for (uint32_t i = 0; i < n; ++i) {
    out[i] = F32ToUnsignedF8(stats[i] * kValueScale);
  }
}

void LookaheadPolicy::Observe(const LaneObservation& observation) {
  pages_.CheckSees(observation);
  history_.Observe(observation);
}

void LookaheadPolicy::ScoreSlots(uint32_t lane, uint32_t /*now_pos*/,
                                 const SlotScores& out) const {
  const uint32_t n_slots = pages_.n_slots(lane);
  CHECK(out.attention.size() == n_slots && out.score.size() == n_slots);
  history_.PredictNext(lane, 0, out.attention);
  const uint8_t* value_stat = value_stat_.of(lane);
  const float* attention = out.attention.data();
  float* score = out.score.data();
  for (uint32_t i = 0; i < n_slots; ++i) {
    score[i] = UnsignedF8ToF32(value_stat[i]) * (1 / kValueScale);
  }
  if (score_ == ScoreName::kOutputError) {
    for (uint32_t i = 0; i < n_slots; ++i) {
      score[i] = OutputErrorScore(attention[i], score[i]);
    }
    if (has_network()) AddReuse(lane, out.score);
    return;
  }
  // The forecast is flat: one step stands for all.
  for (uint32_t i = 0; i < n_slots; ++i) {
    score[i] = ValueNormScore(score[i],
                              std::span<const float>(&attention[i], 1), decay_);
  }
}

void LookaheadPolicy::AddReuse(uint32_t lane, std::span<float> score) const {
  constexpr uint32_t kBlock = 256;
  float inputs[HistoryNetwork::kInputs * kBlock];
  float forecast[kBlock];
  for (size_t begin = 0; begin < score.size(); begin += kBlock) {
    const std::span block =
        score.subspan(begin, std::min<size_t>(kBlock, score.size() - begin));
    const auto n = static_cast<uint32_t>(block.size());
    history_.NetworkInputs(lane, static_cast<uint32_t>(begin), n, inputs);
    predictor_.network->Forecast(kernels_, predictor_.first_lane + lane, inputs,
                                 {forecast, n});
    for (uint32_t i = 0; i < n; ++i) {
      block[i] += kReuseWeight * LinearExp2(forecast[i]);
    }
  }
}

void LookaheadPolicy::MoveSlots(uint32_t lane, const SlotMoves& moves) {
  history_.MoveSlots(lane, moves);
  value_stat_.MoveSlots(lane, moves);
}

void LookaheadPolicy::RemovePage(uint32_t lane, uint32_t index) {
  uint32_t n_pages = pages_.RemovePage(lane, index);
  history_.RemovePage(lane, index, n_pages);
  value_stat_.RemovePage(lane, index, n_pages);
}

}  // namespace lkv
