// The look-ahead policy: keep what the next steps are predicted to attend to,
// weighed by what its loss would change.
//
// Composes what the next steps are expected to attend to (slot_history.h, from
// group maxima), what the rest of the text may (history_network.h) and a score
// (scorer.h). A page is worth its best slot: one token that must stay
// counts for more than sixteen that may (against the sum over slots, KL to the
// full cache falls by 4 % over three texts of 2,048 + 128 tokens at a budget of
// 25 %). With `output_error` and no network it is two-stage: half of what stays
// is chosen by expected attention alone. State per slot: a half and a byte of
// history, a byte of value statistic; 68 B a page, 1.7 % of a page of 4 KiB.
// Contract and thread rule as in eviction_policy.h. Cost for 2048 slots:
// Observe 0.2 us, ScoreSlots 2 us, with the network 4 us. Where there is a
// network, every 8th query looks in one lane in 16 for a token that returned
// (forecast_check.h): a pass over the masses and, only where one did, a pass of
// averages and network over the lane's far slots, another 4 us.
#pragma once

#include "kernels/kernel_table.h"
#include "lookaheadkv/options.h"
#include "policy/eviction_policy.h"
#include "policy/forecast_check.h"
#include "policy/history_network.h"
#include "policy/lane_pages.h"
#include "policy/protection.h"
#include "policy/slot_history.h"

namespace lkv {

class LookaheadPolicy : public EvictionPolicy {
 public:
  // A token that may get all attention at some time weighs as one that gets
  // this part of it all the time: found by the closed loop on held-out texts
  // (docs/experiments.md).
  static constexpr float kReuseWeight = 1.0f / 12;

  // Reads score, prediction_steps, temporal_decay, sink_ and recent_tokens.
  // The network serves `output_error` only; the older score stays as it was.
  LookaheadPolicy(const CacheOptions& options, const PolicyCapacity& capacity,
                  const KernelTable& kernels, const PredictorView& predictor);

  std::string_view name() const override { return name_; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<LookaheadPolicy>(*this);
  }
  void ExchangeState(StateStream& stream) override {
    pages_.ExchangeState(stream);
    history_.ExchangeState(stream, pages_);
    check_.ExchangeState(stream);
    stream.Exchange(allows_network_);
    ExchangeArrays(stream, pages_, value_stat_);
  }
  size_t bytes_per_page() const override;
  bool two_stage() const override {
    return score_ == ScoreName::kOutputError && !uses_network();
  }
  void AddPage(uint32_t lane, uint32_t first_pos) override;
  void AddSlots(uint32_t lane, uint32_t n, const float* value_norms,
                const float* value_distances) override;
  void Observe(const LaneObservation& observation) override;
  bool EndStep() override {
    const bool used_network = uses_network();
    check_.Decide();
    return uses_network() != used_network;
  }
  bool AllowNetwork(bool allowed) override {
    const bool used_network = uses_network();
    allows_network_ = allowed;
    return uses_network() != used_network;
  }
  const ForecastCheck::Verdict* forecast() const override {
    return has_network() ? &check_.verdict() : nullptr;
  }
  void ScoreSlots(uint32_t lane, uint32_t now_pos,
                  const SlotScores& out) const override;
  PageWorth page_worth() const override { return PageWorth::kBest; }
  void MoveSlots(uint32_t lane, const SlotMoves& moves) override;
  void RemovePage(uint32_t lane, uint32_t index) override;

 private:
  bool has_network() const {
    return predictor_.network != nullptr && score_ == ScoreName::kOutputError;
  }
  bool uses_network() const {
    return has_network() && allows_network_ && check_.verdict().uses_network;
  }
  // Before the history learns of it: did a token return, and who saw it coming?
  void CheckForecast(const LaneObservation& observation);
  // The network's forecast of the slots of a lane from first_slot on, log2.
  // Requires out.size() <= kBlock.
  void Forecast(uint32_t lane, uint32_t first_slot, std::span<float> out) const;
  // Adds what the tokens may be worth later to their scores.
  void AddReuse(uint32_t lane, std::span<float> score) const;

  static constexpr uint32_t kBlock = 256;  // slots forecast at once

  std::string_view name_;
  ScoreName score_;
  float decay_;
  ProtectedEnds ends_;
  LanePages pages_;
  const KernelTable& kernels_;
  const PredictorView predictor_;
  SlotHistory history_;
  ForecastCheck check_;
  bool allows_network_ = true;
  // |v| or |v - o|, whichever the score needs, times kValueScale, as f8.
  LaneArray<uint8_t> value_stat_;  // [n_lanes, pages_per_lane, kPageTokens]
};

}  // namespace lkv
