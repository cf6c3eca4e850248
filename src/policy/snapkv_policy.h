// SnapKV as a baseline (arXiv 2404.14469): mean attention of the last 32
// observed queries, max-pooled over 7 neighbouring tokens so that the
// neighbours of an important token stay with it.
//
// The exact window would cost 32 numbers per slot. Two sums do: one over the
// current block of up to 32 queries, one over the full block before it, of
// which the part still inside the window is estimated by its share. After every
// 32nd query the mean is exact.
//
// Pooling stays among contestable slots: past the edge of the recent tokens the
// attention is 100 times higher and would save whatever stands beside it.
// State: two f32 per slot, 132 B a page with its position.
#pragma once

#include <vector>

#include "policy/eviction_policy.h"
#include "policy/lane_pages.h"
#include "policy/protection.h"

namespace lkv {

class SnapKvPolicy : public EvictionPolicy {
 public:
  static constexpr uint32_t kWindowQueries = 32;
  static constexpr uint32_t kPoolTokens = 7;

  SnapKvPolicy(const ProtectedEnds& ends, const PolicyCapacity& capacity);

  std::string_view name() const override { return "snapkv"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<SnapKvPolicy>(*this);
  }
  void ExchangeState(StateStream& stream) override {
    pages_.ExchangeState(stream);
    ExchangeArrays(stream, pages_, sums_);
    stream.Exchange(n_current_);
  }
  size_t bytes_per_page() const override;
  void AddPage(uint32_t lane, uint32_t first_pos) override;
  void AddSlots(uint32_t lane, uint32_t n, const float* value_norms,
                const float* value_distances) override;
  void Observe(const LaneObservation& observation) override;
  void ScoreSlots(uint32_t lane, uint32_t now_pos,
                  const SlotScores& out) const override;
  void MoveSlots(uint32_t lane, const SlotMoves& moves) override;
  void RemovePage(uint32_t lane, uint32_t index) override;

 private:
  // Sums of group-maximum attention over the two blocks of queries.
  struct SlotSums {
    float current;
    float before;

    void ExchangeState(StateStream& stream) {
      stream.Exchange(current);
      stream.Exchange(before);
    }
  };
  float MeanAttention(uint32_t lane, const SlotSums& sums) const;

  ProtectedEnds ends_;
  LanePages pages_;
  LaneArray<SlotSums> sums_;         // [n_lanes, pages_per_lane, kPageTokens]
  std::vector<uint32_t> n_current_;  // [n_lanes] queries in the current block
};

}  // namespace lkv
