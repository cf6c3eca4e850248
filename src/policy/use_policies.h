// LRU and LFU: baselines that ask whether a token was used.
//
// A slot is used by a query when it belongs to the smallest set of contestable
// slots that covers 90 % of their mass, at most 10 % of the lane's slots
// (heavy_hitters.h). Without that
// definition dense attention uses everything always, and LRU is FIFO. Masses
// are the group mean, as in the hit rates.
#pragma once

#include "policy/slot_stat_policy.h"

namespace lkv {

class UsePolicy : public SlotStatPolicy {
 public:
  static constexpr double kUsedSlotShare = 0.1;

  size_t bytes_per_page() const override {
    return SlotStatPolicy::bytes_per_page() + kPageTokens * sizeof(float);
  }
  void Observe(const LaneObservation& observation) override;

 protected:
  UsePolicy(const ProtectedEnds& ends, const PolicyCapacity& capacity)
      : SlotStatPolicy(capacity),
        ends_(ends),
        scratch_(capacity, kPageTokens) {}
  // The slot's statistic after a use by the query at query_pos.
  virtual float AfterUse(float stat, uint32_t query_pos) const = 0;

 private:
  ProtectedEnds ends_;
  LaneArray<float> scratch_;  // [n_lanes, pages_per_lane, kPageTokens]
};

// Score: position of the query that last used the token; arrival counts as a
// use. Exact in f32 up to position 2^24. A page was used when its best slot
// was.
class LruPolicy : public UsePolicy {
 public:
  LruPolicy(const ProtectedEnds& ends, const PolicyCapacity& capacity)
      : UsePolicy(ends, capacity) {}
  std::string_view name() const override { return "lru"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<LruPolicy>(*this);
  }
  PageWorth page_worth() const override { return PageWorth::kBest; }

 protected:
  float InitialStat(uint32_t lane, uint32_t pos) const override;
  float AfterUse(float stat, uint32_t query_pos) const override;
};

// Score: number of observed queries that used the token.
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
