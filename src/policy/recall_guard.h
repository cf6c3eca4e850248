// RecallGuard: whether a sequence that reads a part of its cold tokens reads
// enough of them, and what is done about it if not.
//
// Now and then one layer also reads what the step left out. The share of
// attention that went there is the *recall gap*: the total variation distance
// between attention over everything and attention over what was read. While its
// average passes the limit, the guard goes up a level, and after a rest
// another one; while it stays below half of the limit for long, it goes down.
//
//   0           as the options say
//   1, 2, 3     1.5, 2.25, 3.4 times the share is read
//   4           and forecasts are those of the moving average alone
//   5           everything is read
//
// Thread rule: one caller, between steps. Pure; allocates nothing. (Ours.)
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "base/state_stream.h"

namespace lkv {

class RecallGuard {
 public:
  struct Options {
    uint32_t sample_steps = 64;  // between two samples, at least 1
    double max_gap = 0.15;
  };
  static constexpr uint32_t kMostLevel = 5;
  static constexpr uint32_t kAverageLevel = 4;
  // Samples that an average is over, about, and before the level may go up
  // again, and down. A sample of one layer says little of the others.
  static constexpr double kSmoothing = 0.9;
  static constexpr uint32_t kRestUp = 16;
  static constexpr uint32_t kRestDown = 128;

  explicit RecallGuard(const Options& options) : options_(options) {}

  // The layer that the step behind n_tokens samples; n_layers for none.
  uint32_t LayerToSample(uint32_t n_tokens, uint32_t n_layers) const {
    if (n_tokens % options_.sample_steps != 0) return n_layers;
    return n_tokens / options_.sample_steps % n_layers;
  }
  // A sample behind n_tokens; one that is no number is none. Returns whether
  // the level has changed.
  bool Add(double gap, uint32_t n_tokens);

  uint32_t level() const { return level_; }
  // Average; 0 before the first sample.
  double gap() const { return gap_; }
  uint32_t n_samples() const { return n_samples_; }
  uint32_t n_changes() const { return n_changes_; }
  // A change of the level, and its cause.
  struct Change {
    uint32_t n_tokens = 0;
    uint32_t level = 0;
    double gap = 0;
  };
  static constexpr uint32_t kChangesKept = 16;
  // The last ones, in order.
  std::span<const Change> changes() const {
    return std::span(changes_).first(std::min(n_changes_, kChangesKept));
  }
  // What is read instead of `share`, the options'.
  double Widened(double share) const {
    if (level_ == kMostLevel) return 1;
    const uint32_t n_widenings = std::min(level_, kAverageLevel - 1);
    return std::min(1.0, share * std::pow(1.5, n_widenings));
  }
  bool drops_network() const { return level_ >= kAverageLevel; }

  void ExchangeState(StateStream& stream) {
    stream.ExchangeCount(level_, kMostLevel);
    stream.Exchange(gap_);
    stream.Require(std::isfinite(gap_));
    stream.ExchangeCount(n_samples_, 1u << 24);
    stream.Exchange(n_changes_);
    stream.Exchange(n_since_change_);
    stream.Exchange(n_calm_);
    for (Change& change : changes_) {
      stream.Exchange(change.n_tokens);
      stream.ExchangeCount(change.level, kMostLevel);
      stream.Exchange(change.gap);
    }
  }

 private:
  void MoveTo(uint32_t level, uint32_t n_tokens);

  Options options_;
  uint32_t level_ = 0;
  double gap_ = 0;
  uint32_t n_samples_ = 0;
  uint32_t n_changes_ = 0;
  uint32_t n_since_change_ = 0;
  std::array<Change, kChangesKept> changes_;
  uint32_t n_calm_ = 0;  // samples in a row with the average below half
};

}  // namespace lkv
