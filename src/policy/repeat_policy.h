// Repeat: keep the tokens that the model itself looks at when it reads the same
// text once more behind itself (KVzip, arXiv 2505.23416). A thorough policy for
// texts that are read once and asked often: it costs a second reading.
//
// Whoever drives the second reading fills RereadScores; the policy ranks tokens
// by them. Tokens that came later rank above all others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "policy/eviction_policy.h"
#include "policy/lane_pages.h"

namespace lkv {

// The most attention (group maximum) that each token of a text got from any
// query of its second reading: [n_lanes, n_positions]. Different lanes by any
// threads.
class RereadScores {
 public:
  RereadScores() = default;
  RereadScores(uint32_t n_lanes, uint32_t n_positions)
      : n_positions_(n_positions), scores_(size_t{n_lanes} * n_positions) {}

  uint32_t n_positions() const { return n_positions_; }
  // [n_positions]
  std::span<const float> of(uint32_t lane) const {
    return std::span(scores_).subspan(size_t{lane} * n_positions_,
                                      n_positions_);
  }
  // One query's masses of the first n_positions tokens.
  void Observe(uint32_t lane, const float* mass_max) {
    float* scores = &scores_[size_t{lane} * n_positions_];
    for (uint32_t i = 0; i < n_positions_; ++i) {
      scores[i] = std::max(scores[i], mass_max[i]);
    }
  }

 private:
  uint32_t n_positions_ = 0;
  std::vector<float> scores_;
};

class RepeatPolicy final : public EvictionPolicy {
 public:
  // `scores` may be filled until the first ScoreSlots.
  RepeatPolicy(std::shared_ptr<const RereadScores> scores,
               const PolicyCapacity& capacity)
      : scores_(std::move(scores)),
        pages_(capacity),
        pos_(capacity, kPageTokens) {}

  std::string_view name() const override { return "repeat"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<RepeatPolicy>(*this);
  }
  size_t bytes_per_page() const override {
    return LanePages::kBytesPerPage + kPageTokens * sizeof(uint32_t);
  }
  PageWorth page_worth() const override { return PageWorth::kBest; }
  void AddPage(uint32_t lane, uint32_t first_pos) override {
    pages_.AddPage(lane, first_pos);
  }
  void AddSlots(uint32_t lane, uint32_t n, const float* value_norms,
                const float* value_distances) override;
  void Observe(const LaneObservation&) override {}
  void ScoreSlots(uint32_t lane, uint32_t now_pos,
                  const SlotScores& out) const override;
  void MoveSlots(uint32_t lane, const SlotMoves& moves) override {
    pos_.MoveSlots(lane, moves);
  }
  void RemovePage(uint32_t lane, uint32_t index) override {
    const uint32_t n_pages = pages_.RemovePage(lane, index);
    pos_.RemovePage(lane, index, n_pages);
  }

 private:
  std::shared_ptr<const RereadScores> scores_;
  LanePages pages_;
  LaneArray<uint32_t> pos_;  // [n_lanes, pages_per_lane, kPageTokens]
};

}  // namespace lkv
