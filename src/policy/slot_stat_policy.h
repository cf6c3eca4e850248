// SlotStatPolicy: what the baselines have in common, one number per slot that
// observations change and by which slots, or pages by their sum, are ranked.
#pragma once

#include "policy/eviction_policy.h"
#include "policy/lane_pages.h"
#include "policy/protection.h"

namespace lkv {

class SlotStatPolicy : public EvictionPolicy {
 public:
  void ExchangeState(StateStream& stream) override {
    pages_.ExchangeState(stream);
    ExchangeArrays(stream, pages_, stat_);
  }
  size_t bytes_per_page() const override {
    return LanePages::kBytesPerPage + kPageTokens * sizeof(float);
  }
  void AddPage(uint32_t lane, uint32_t first_pos) override;
  void AddSlots(uint32_t lane, uint32_t n, const float* value_norms,
                const float* value_distances) override;
  // The statistic itself is the score.
  void ScoreSlots(uint32_t lane, uint32_t now_pos,
                  const SlotScores& out) const override;
  void MoveSlots(uint32_t lane, const SlotMoves& moves) override;
  void RemovePage(uint32_t lane, uint32_t index) override;

 protected:
  explicit SlotStatPolicy(const PolicyCapacity& capacity)
      : pages_(capacity), stat_(capacity, kPageTokens) {}

  // The statistic of a token that was just written.
  virtual float InitialStat(uint32_t /*lane*/, uint32_t /*pos*/) const {
    return 0;
  }

  LanePages pages_;
  LaneArray<float> stat_;  // [n_lanes, pages_per_lane, kPageTokens]
};

}  // namespace lkv
