#include "policy/window_controller.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/types.h"

namespace lkv {
namespace {

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

double WindowLawTokens(WindowLaw law, double base_tokens, double change,
                       double threshold) {
  double excess = change - threshold;
  switch (law) {
    case WindowLaw::kSymmetric:
      return base_tokens *
             std::pow(4, 2 * Logistic(WindowController::kSlope * excess) - 1);
    case WindowLaw::kSource:
      return base_tokens * (1 + Logistic(excess));
  }
  return base_tokens;
}

WindowController::WindowController(const Options& options) : options_(options) {
  CheckLimits();
  window_tokens_ =
      may_evict() ? options.limits.max_tokens : options.budget_tokens;
}

void WindowController::CheckLimits() const {
  const WindowLimits& limits = options_.limits;
  CHECK(limits.min_tokens <= limits.base_tokens &&
        limits.base_tokens <= limits.max_tokens &&
        limits.max_tokens <= options_.budget_tokens);
}

void WindowController::SetLimits(const WindowLimits& limits,
                                 uint32_t budget_tokens,
                                 uint32_t switch_tokens) {
  const bool at_max = window_tokens_ == options_.limits.max_tokens;
  options_.limits = limits;
  options_.budget_tokens = budget_tokens;
  options_.switch_tokens = switch_tokens;
  CheckLimits();
  frozen_ = false;
  if (!may_evict()) {
    window_tokens_ = budget_tokens;
  } else if (at_max) {
    window_tokens_ = limits.max_tokens;
  } else {
    window_tokens_ =
        std::clamp(window_tokens_, limits.min_tokens, limits.max_tokens);
  }
}

EvictionRule WindowController::rule() const {
  return frozen_ ? EvictionRule::kScoreThreshold : options_.rule;
}

uint32_t WindowController::TargetTokens(double change) const {
  const WindowLimits& limits = options_.limits;
  // Free to shrink only with twice the base behind it: before that the pattern
  // is the text's beginning, not its habit.
  if (n_tokens_ <= uint64_t{2} * limits.base_tokens) return limits.max_tokens;
  double tokens = WindowLawTokens(options_.law, limits.base_tokens, change,
                                  options_.change_threshold);
  auto whole_pages = static_cast<uint32_t>(tokens / kPageTokens) * kPageTokens;
  return std::clamp(whole_pages, limits.min_tokens, limits.max_tokens);
}

void WindowController::Update(double change, uint32_t n_tokens) {
  const bool was_warming_up = !may_evict();
  n_tokens_ = n_tokens;
  if (!may_evict()) return;
  if (was_warming_up) window_tokens_ = options_.limits.max_tokens;
  if (frozen_) return;
  if (options_.strategy == WindowStrategy::kHybrid &&
      n_tokens >= options_.switch_tokens) {
    window_tokens_ = TargetTokens(change);
    frozen_ = true;
    return;
  }
  if (has_moved_ && (n_tokens - last_move_tokens_ < options_.dwell_steps ||
                     std::abs(change - last_move_change_) <= kBand)) {
    return;
  }
  uint32_t target = TargetTokens(change);
  if (target == window_tokens_) return;
  window_tokens_ = target;
  last_move_tokens_ = n_tokens;
  last_move_change_ = change;
  has_moved_ = true;
}

}  // namespace lkv
