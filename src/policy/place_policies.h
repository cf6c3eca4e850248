// Baselines that look at the place of a page only, never at attention.
#pragma once

#include "policy/page_stat_policy.h"

namespace lkv {

// Oldest arrival first: `fifo`, and `streaming` as well. StreamingLLM (arXiv
// 2309.17453) keeps sinks and the newest tokens; with the sinks protected for
// every policy, as they are here, the newest are what FIFO keeps. The page
// number is the score, exact in f32 up to position 2^28.
class ArrivalPolicy : public PageStatPolicy {
 public:
  ArrivalPolicy(std::string_view name, const PolicyCapacity& capacity)
      : PageStatPolicy(capacity), name_(name) {}
  std::string_view name() const override { return name_; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<ArrivalPolicy>(*this);
  }
  void Observe(const LaneObservation&) override {}

 protected:
  float InitialStat(uint32_t lane, uint32_t first_pos) const override;

 private:
  std::string_view name_;  // a literal
};

// Uniformly: a hash of (seed, lane, first position of the page), so that no
// call changes the outcome of another.
class RandomPolicy : public PageStatPolicy {
 public:
  RandomPolicy(uint64_t seed, const PolicyCapacity& capacity)
      : PageStatPolicy(capacity), seed_(seed) {}
  std::string_view name() const override { return "random"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<RandomPolicy>(*this);
  }
  void Observe(const LaneObservation&) override {}

 protected:
  float InitialStat(uint32_t lane, uint32_t first_pos) const override;

 private:
  uint64_t seed_;
};

}  // namespace lkv
