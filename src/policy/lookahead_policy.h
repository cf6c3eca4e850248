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
// Observe 0.2 us, ScoreSlots 2 us, with the network 4 us.
#pragma once

#include "kernels/kernel_table.h"
#include "lookaheadkv/options.h"
#include "policy/eviction_policy.h"
#include "policy/history_network.h"
#include "policy/lane_pages.h"
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

  std::string_view name() const override { return "lookahead"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<LookaheadPolicy>(*this);
  }
  size_t bytes_per_page() const override;
  bool two_stage() const override {
    return score_ == ScoreName::kOutputError && !has_network();
  }
  bool has_network() const override {
    return predictor_.network != nullptr && score_ == ScoreName::kOutputError;
  }
  void AddPage(uint32_t lane, uint32_t first_pos) override;
  void AddSlots(uint32_t lane, uint32_t n, const float* value_norms,
                const float* value_distances) override;
  void Observe(const LaneObservation& observation) override;
  void ScoreSlots(uint32_t lane, uint32_t now_pos,
                  const SlotScores& out) const override;
  PageWorth page_worth() const override { return PageWorth::kBest; }
  void MoveSlots(uint32_t lane, const SlotMoves& moves) override;
  void RemovePage(uint32_t lane, uint32_t index) override;

 private:
  // Adds what the tokens may be worth later to their scores.
  void AddReuse(uint32_t lane, std::span<float> score) const;

  ScoreName score_;
  float decay_;
  LanePages pages_;
  const KernelTable& kernels_;
  const PredictorView predictor_;
  SlotHistory history_;
  // |v| or |v - o|, whichever the score needs, times kValueScale, as f8.
  LaneArray<uint8_t> value_stat_;  // [n_lanes, pages_per_lane, kPageTokens]
};

}  // namespace lkv
