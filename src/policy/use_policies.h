// LRU and LFU: baselines that ask whether a page was used.
//
// A slot is used by a query when it belongs to the smallest set of contestable
// slots that covers 90 % of their mass, at most 10 % of the lane's slots
// (heavy_hitters.h); a page is used when one of its slots is. Without that
// definition dense attention uses everything always, and LRU is FIFO. Masses
// are the group mean, as in the hit rates.
#pragma once

#include "policy/page_stat_policy.h"

namespace lkv {

class UsePolicy : public PageStatPolicy {
 public:
  static constexpr double kUsedMassShare = 0.9;
  static constexpr double kUsedSlotShare = 0.1;

  size_t bytes_per_page() const override {
    return PageStatPolicy::bytes_per_page() + kPageTokens * sizeof(float);
  }
  void Observe(const LaneObservation& observation) override;

 protected:
  UsePolicy(const ProtectedEnds& ends, const PolicyCapacity& capacity)
      : PageStatPolicy(capacity),
        ends_(ends),
        scratch_(capacity, kPageTokens) {}
  // The page's statistic after a use by the query at query_pos.
  virtual float AfterUse(float stat, uint32_t query_pos) const = 0;

 private:
  ProtectedEnds ends_;
  LaneArray<float> scratch_;  // [n_lanes, pages_per_lane, kPageTokens]
};

// Score: position of the query that last used the page; arrival counts as a
// use. Exact in f32 up to position 2^24.
class LruPolicy : public UsePolicy {
 public:
  LruPolicy(const ProtectedEnds& ends, const PolicyCapacity& capacity)
      : UsePolicy(ends, capacity) {}
  std::string_view name() const override { return "lru"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<LruPolicy>(*this);
  }

 protected:
  float InitialStat(uint32_t lane, uint32_t first_pos) const override;
  float AfterUse(float stat, uint32_t query_pos) const override;
};

// Score: number of observed queries that used the page.
class LfuPolicy : public UsePolicy {
 public:
  LfuPolicy(const ProtectedEnds& ends, const PolicyCapacity& capacity)
      : UsePolicy(ends, capacity) {}
  std::string_view name() const override { return "lfu"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<LfuPolicy>(*this);
  }

 protected:
  float AfterUse(float stat, uint32_t query_pos) const override;
};

}  // namespace lkv
