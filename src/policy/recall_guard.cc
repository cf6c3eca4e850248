#include "policy/recall_guard.h"

namespace lkv {

void RecallGuard::MoveTo(uint32_t level, uint32_t n_tokens) {
  level_ = level;
  if (n_changes_ >= kChangesKept) {
    std::move(changes_.begin() + 1, changes_.end(), changes_.begin());
  }
  changes_[std::min(n_changes_, kChangesKept - 1)] = {n_tokens, level, gap_};
  ++n_changes_;
  n_since_change_ = 0;
  n_calm_ = 0;
}

bool RecallGuard::Add(double gap, uint32_t n_tokens) {
  if (!std::isfinite(gap)) return false;
  // The mean of the first samples, so that one does not speak for all.
  ++n_samples_;
  const double weight = std::max(1 - kSmoothing, 1.0 / n_samples_);
  gap_ += weight * (gap - gap_);
  ++n_since_change_;
  n_calm_ = gap_ < options_.max_gap / 2 ? n_calm_ + 1 : 0;
  if (gap_ > options_.max_gap && n_since_change_ >= kRestUp &&
      level_ < kMostLevel) {
    MoveTo(level_ + 1, n_tokens);
    return true;
  }
  if (n_calm_ < kRestDown || level_ == 0) return false;
  MoveTo(level_ - 1, n_tokens);
  return true;
}

}  // namespace lkv
