// Baselines that rank tokens by attention seen so far: sums (h2o), sums by age
// (observed), the last row (tova). Masses are group maxima, like those of the
// look-ahead policy.
#pragma once

#include "policy/slot_stat_policy.h"

namespace lkv {

// Cumulative attention (H2O, arXiv 2306.14048). An observed query weighs the
// tokens it stands for, so that sampling in prefill does not shrink the sum.
class H2oPolicy : public SlotStatPolicy {
 public:
  explicit H2oPolicy(const PolicyCapacity& capacity)
      : SlotStatPolicy(capacity) {}
  std::string_view name() const override { return "h2o"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<H2oPolicy>(*this);
  }
  void Observe(const LaneObservation& observation) override;
};

// H2O's sum divided by the token's age (as kvpress's ObservedAttention): a
// plain sum favours old tokens.
class ObservedPolicy : public H2oPolicy {
 public:
  explicit ObservedPolicy(const PolicyCapacity& capacity)
      : H2oPolicy(capacity), birth_pos_(capacity, kPageTokens) {}
  std::string_view name() const override { return "observed"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<ObservedPolicy>(*this);
  }
  void ExchangeState(StateStream& stream) override {
    H2oPolicy::ExchangeState(stream);
    ExchangeArrays(stream, pages_, birth_pos_);
  }
  size_t bytes_per_page() const override {
    return H2oPolicy::bytes_per_page() + kPageTokens * sizeof(uint32_t);
  }
  void AddSlots(uint32_t lane, uint32_t n, const float* value_norms,
                const float* value_distances) override;
  void ScoreSlots(uint32_t lane, uint32_t now_pos,
                  const SlotScores& out) const override;
  void MoveSlots(uint32_t lane, const SlotMoves& moves) override;
  void RemovePage(uint32_t lane, uint32_t index) override;

 private:
  LaneArray<uint32_t> birth_pos_;  // [n_lanes, pages_per_lane, kPageTokens]
};

// Attention of the last observed query alone (TOVA, arXiv 2401.06104).
class TovaPolicy : public SlotStatPolicy {
 public:
  explicit TovaPolicy(const PolicyCapacity& capacity)
      : SlotStatPolicy(capacity) {}
  std::string_view name() const override { return "tova"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<TovaPolicy>(*this);
  }
  void Observe(const LaneObservation& observation) override;
};

}  // namespace lkv
