// Baselines that rank pages by attention seen so far: sums (h2o), sums by age
// (observed), the last row (tova). Masses are group maxima, like those of the
// look-ahead policy; a page's attention is the sum over its slots.
#pragma once

#include "policy/page_stat_policy.h"

namespace lkv {

// Cumulative attention (H2O, arXiv 2306.14048). An observed query weighs the
// tokens it stands for, so that sampling in prefill does not shrink the sum.
class H2oPolicy : public PageStatPolicy {
 public:
  explicit H2oPolicy(const PolicyCapacity& capacity)
      : PageStatPolicy(capacity) {}
  std::string_view name() const override { return "h2o"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<H2oPolicy>(*this);
  }
  void Observe(const LaneObservation& observation) override;
};

// H2O's sum divided by the page's age in tokens (as kvpress's
// ObservedAttention): a plain sum favours old tokens. One age per page, that of
// its middle slot; pages that may leave are old enough for 8 tokens not to
// matter.
class ObservedPolicy : public H2oPolicy {
 public:
  explicit ObservedPolicy(const PolicyCapacity& capacity)
      : H2oPolicy(capacity) {}
  std::string_view name() const override { return "observed"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<ObservedPolicy>(*this);
  }
  void ScorePages(uint32_t lane, uint32_t now_pos,
                  const PageScores& out) const override;
};

// Attention of the last observed query alone (TOVA, arXiv 2401.06104).
class TovaPolicy : public PageStatPolicy {
 public:
  explicit TovaPolicy(const PolicyCapacity& capacity)
      : PageStatPolicy(capacity) {}
  std::string_view name() const override { return "tova"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<TovaPolicy>(*this);
  }
  void Observe(const LaneObservation& observation) override;
};

}  // namespace lkv
