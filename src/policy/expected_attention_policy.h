// Expected Attention as a baseline (arXiv 2510.00636): a token is worth what
// the queries to come are expected to pay it, times the norm of its value.
//
// Who holds queries and keys tells the expectation now and then
// (cache/expected_attention.h); tokens that came later rank above all others.
#pragma once

#include "policy/slot_stat_policy.h"

namespace lkv {

class ExpectedAttentionPolicy final : public SlotStatPolicy {
 public:
  explicit ExpectedAttentionPolicy(const PolicyCapacity& capacity)
      : SlotStatPolicy(capacity), value_norm_(capacity, kPageTokens) {}

  std::string_view name() const override { return "expected_attention"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<ExpectedAttentionPolicy>(*this);
  }
  void ExchangeState(StateStream& stream) override {
    SlotStatPolicy::ExchangeState(stream);
    ExchangeArrays(stream, pages_, value_norm_);
  }
  size_t bytes_per_page() const override {
    return SlotStatPolicy::bytes_per_page() + kPageTokens * sizeof(float);
  }
  void AddSlots(uint32_t lane, uint32_t n, const float* value_norms,
                const float* value_distances) override;
  void Observe(const LaneObservation&) override {}
  bool wants_expectation() const override { return true; }
  void ObserveExpectation(uint32_t lane,
                          std::span<const float> attention) override;
  void MoveSlots(uint32_t lane, const SlotMoves& moves) override;
  void RemovePage(uint32_t lane, uint32_t index) override;

 private:
  float InitialStat(uint32_t lane, uint32_t pos) const override;

  LaneArray<float> value_norm_;  // [n_lanes, pages_per_lane, kPageTokens]
};

}  // namespace lkv
