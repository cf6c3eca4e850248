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

// Twice the number of values below `value`, and once that of values like it.
uint32_t TwiceBelow(std::span<const float> values, float value) {
  uint32_t n = 0;
  for (float other : values) n += (other < value) + (other <= value);
  return n;
}

}  // namespace

LookaheadPolicy::LookaheadPolicy(const CacheOptions& options,
                                 const PolicyCapacity& capacity,
                                 const KernelTable& kernels,
                                 const PredictorView& predictor)
    : name_(options.policy == PolicyName::kEma ? "ema" : "lookahead"),
      score_(options.score),
      decay_(static_cast<float>(options.temporal_decay)),
      ends_(ProtectedEndsOf(options)),
      pages_(capacity),
      kernels_(kernels),
      predictor_(predictor),
      history_({.prediction_steps = options.prediction_steps, .ends = ends_},
               capacity, kernels),
      check_(capacity.n_lanes),
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
  if (has_network()) CheckForecast(observation);
  history_.Observe(observation);
}

void LookaheadPolicy::CheckForecast(const LaneObservation& observation) {
  const uint32_t lane = observation.lane;
  const uint32_t query_pos = observation.query_pos;
  if (!SlotHistory::IsPeakQuery(query_pos) ||
      !ForecastCheck::Samples(lane, query_pos / SlotHistory::kPeakQueries)) {
    return;
  }
  LaneRange far = ContestableSlots(ends_, observation.n_slots);
  far.end = std::min(
      far.end, observation.n_slots -
                   std::min(observation.n_slots, SlotHistory::kFarTokens));
  uint32_t returned = far.end;
  float average = 0;
  float most = ForecastCheck::kReturnMass;
  for (uint32_t i = far.begin; i < far.end; ++i) {
    const float mass = observation.mass_max[i];
    if (mass < most) continue;
    float expected;
    history_.PredictNext(lane, i, {&expected, 1});
    if (mass < ForecastCheck::kReturnSurprise * expected) continue;
    returned = i;
    average = expected;
    most = mass;
  }
  if (returned == far.end) return;
  float forecast;
  Forecast(lane, returned, {&forecast, 1});
  uint32_t average_below = 0;
  uint32_t forecast_below = 0;
  float values[kBlock];
  for (uint32_t begin = far.begin; begin < far.end; begin += kBlock) {
    const std::span block(values, std::min(kBlock, far.end - begin));
    history_.PredictNext(lane, begin, block);
    average_below += TwiceBelow(block, average);
    Forecast(lane, begin, block);
    forecast_below += TwiceBelow(block, forecast);
  }
  const float scale = 0.5f / static_cast<float>(far.count());
  check_.Add(lane, static_cast<float>(forecast_below) * scale,
             static_cast<float>(average_below) * scale);
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
    if (uses_network()) AddReuse(lane, out.score);
    return;
  }
  // The forecast is flat: one step stands for all.
  for (uint32_t i = 0; i < n_slots; ++i) {
    score[i] = ValueNormScore(score[i],
                              std::span<const float>(&attention[i], 1), decay_);
  }
}

void LookaheadPolicy::AddReuse(uint32_t lane, std::span<float> score) const {
  float forecast[kBlock];
  for (size_t begin = 0; begin < score.size(); begin += kBlock) {
    const std::span block =
        score.subspan(begin, std::min<size_t>(kBlock, score.size() - begin));
    Forecast(lane, static_cast<uint32_t>(begin), {forecast, block.size()});
    for (size_t i = 0; i < block.size(); ++i) {
      block[i] += kReuseWeight * LinearExp2(forecast[i]);
    }
  }
}

void LookaheadPolicy::Forecast(uint32_t lane, uint32_t first_slot,
                               std::span<float> out) const {
  float inputs[HistoryNetwork::kInputs * kBlock];
  history_.NetworkInputs(lane, first_slot, static_cast<uint32_t>(out.size()),
                         inputs);
  predictor_.network->Forecast(kernels_, predictor_.first_lane + lane, inputs,
                               out);
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
