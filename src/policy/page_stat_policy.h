// PageStatPolicy: what the baselines have in common, one number per page that
// observations change and by which pages are ranked.
#pragma once

#include "policy/eviction_policy.h"
#include "policy/lane_pages.h"
#include "policy/protection.h"

namespace lkv {

class PageStatPolicy : public EvictionPolicy {
 public:
  size_t bytes_per_page() const override {
    return LanePages::kBytesPerPage + sizeof(float);
  }
  void AddPage(uint32_t lane, uint32_t first_pos) override;
  void AddSlots(uint32_t lane, uint32_t n, const float* value_norms,
                const float* value_distances) override;
  // The statistic itself is the score.
  void ScorePages(uint32_t lane, uint32_t now_pos,
                  const PageScores& out) const override;
  void RemovePage(uint32_t lane, uint32_t index) override;

 protected:
  explicit PageStatPolicy(const PolicyCapacity& capacity)
      : pages_(capacity), stat_(capacity, 1) {}

  // The statistic of a page that was just opened.
  virtual float InitialStat(uint32_t /*lane*/, uint32_t /*first_pos*/) const {
    return 0;
  }

  LanePages pages_;
  LaneArray<float> stat_;  // [n_lanes, pages_per_lane]
};

}  // namespace lkv
