// The look-ahead policy: keep what the next steps are predicted to attend to,
// weighed by what its loss would change.
//
// Composes a predictor (attention expected per slot, from group maxima) and a
// score (scorer.h). A page is worth its best slot: one token that must stay
// counts for more than sixteen that may (against the sum over slots, KL to the
// full cache falls by 4 % over three texts of 2,048 + 128 tokens at a budget of
// 25 %). With `output_error` it is two-stage: half of what stays is chosen by
// predicted attention alone. State per slot: two halves, prediction and value
// statistic; 68 B a page, 1.7 % of a page of 4 KiB. Contract and thread rule as
// in eviction_policy.h. Cost for 2048 slots: Observe 0.15 us, ScoreSlots 2 us.
#pragma once

#include "kernels/kernel_table.h"
#include "lookaheadkv/options.h"
#include "policy/ema_predictor.h"
#include "policy/eviction_policy.h"
#include "policy/lane_pages.h"

namespace lkv {

class LookaheadPolicy : public EvictionPolicy {
 public:
  // Reads score, prediction_steps, temporal_decay, sink_ and recent_tokens.
  LookaheadPolicy(const CacheOptions& options, const PolicyCapacity& capacity,
                  const KernelTable& kernels);

  std::string_view name() const override { return "lookahead"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<LookaheadPolicy>(*this);
  }
  size_t bytes_per_page() const override;
  bool two_stage() const override { return score_ == ScoreName::kOutputError; }
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
  ScoreName score_;
  float decay_;
  LanePages pages_;
  EmaPredictor predictor_;
  // |v| or |v - o|, whichever the score needs, as f16.
  LaneArray<uint16_t> value_stat_;  // [n_lanes, pages_per_lane, kPageTokens]
};

}  // namespace lkv
