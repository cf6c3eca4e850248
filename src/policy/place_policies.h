// Baselines that look at the place of a token only, never at attention.
#pragma once

#include "policy/slot_stat_policy.h"

namespace lkv {

// Oldest arrival first: `fifo`, and `streaming` as well. StreamingLLM (arXiv
// 2309.17453) keeps sinks and the newest tokens; with the sinks protected for
// every policy, as they are here, the newest are what FIFO keeps. The position
// is the score, exact in f32 up to 2^24.
class ArrivalPolicy : public SlotStatPolicy {
 public:
  ArrivalPolicy(std::string_view name, const PolicyCapacity& capacity)
      : SlotStatPolicy(capacity), name_(name) {}
  std::string_view name() const override { return name_; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<ArrivalPolicy>(*this);
  }
  PageWorth page_worth() const override { return PageWorth::kBest; }
  void Observe(const LaneObservation&) override {}

 protected:
  float InitialStat(uint32_t lane, uint32_t pos) const override;

 private:
  std::string_view name_;  // a literal
};

// Uniformly: a hash of (seed, lane, position), so that no call changes the
// outcome of another.
class RandomPolicy : public SlotStatPolicy {
 public:
  RandomPolicy(uint64_t seed, const PolicyCapacity& capacity)
      : SlotStatPolicy(capacity), seed_(seed) {}
  std::string_view name() const override { return "random"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<RandomPolicy>(*this);
  }
  PageWorth page_worth() const override { return PageWorth::kBest; }
  void Observe(const LaneObservation&) override {}

 protected:
  float InitialStat(uint32_t lane, uint32_t pos) const override;

 private:
  uint64_t seed_;
};

}  // namespace lkv
