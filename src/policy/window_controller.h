// WindowController: how many tokens of a sequence should be resident now.
//
// The window starts at its maximum. Once the text is longer than 2 * base it
// follows the pattern change: little change (the text repeats itself) shrinks
// it, much change (a new topic) widens it. Against thrash it moves only when
// the change has left a band of +-0.02 around its value at the last move, at
// most once per dwell_steps, and in whole pages.
//
//   symmetric:  base * 4^(2 sigma(20 (change - threshold)) - 1),
//               below 4 base; no change is below 0, so at the default
//               threshold of 0.06 at least 0.475 base, and the nearer to
//               base / 4 the higher the threshold
//   source:     base * (1 + sigma(change - threshold)),
//               strictly in (base, 2 base), so it never shrinks below base
//
// with sigma the logistic function; clamped to [min, max].
//
// Pure but for its own few fields; thread-compatible, one owner; O(1) a step.
#pragma once

#include <cstdint>

#include "base/state_stream.h"

#include "lookaheadkv/options.h"
#include "policy/window_limits.h"

namespace lkv {

// The law's window in tokens, neither clamped nor rounded.
double WindowLawTokens(WindowLaw law, double base_tokens, double change,
                       double threshold);

class WindowController {
 public:
  struct Options {
    WindowStrategy strategy = WindowStrategy::kDynamic;
    WindowLaw law = WindowLaw::kSymmetric;
    EvictionRule rule = EvictionRule::kSizeAware;
    WindowLimits limits = {};    // from ResolveWindow
    uint32_t budget_tokens = 0;  // the cap that the window never passes
    double change_threshold = 0.06;
    uint32_t dwell_steps = 32;
    uint32_t warmup_tokens = 0;
    // (prompt + max new tokens) / 2: where the hybrid strategy freezes.
    uint32_t switch_tokens = 0;
  };
  // Slope of the symmetric law, per nat. On made attention the change is below
  // 0.01 while the text goes on and 0.4 to 0.5 behind a turn, when all of it
  // moves; along SmolLM2's texts it is 0.01 to 0.06, and 0.07 to 0.08 behind a
  // turn. A slope of 20 and a threshold of 0.06 make that 0.475 to 0.53 bases
  // and 4 of the one, 0.53 to 1 and 1.15 to 1.3 of the other.
  static constexpr double kSlope = 20;
  // The change must move this far from its value at the last move.
  static constexpr double kBand = 0.02;

  explicit WindowController(const Options& options);

  // Ends a step after which the sequence has n_tokens tokens. A prefill chunk
  // of n tokens counts as n steps of dwelling.
  void Update(double change, uint32_t n_tokens);

  // The expected text or the budget has changed: new limits, budget and hybrid
  // switch; the other options stay. A window at its maximum stays there. The
  // hybrid strategy freezes anew, at once where the switch lies behind.
  void SetLimits(const WindowLimits& limits, uint32_t budget_tokens,
                 uint32_t switch_tokens);

  // Tokens wanted resident: the budget during warm-up, then within [min, max];
  // a multiple of the page size unless a limit is not.
  uint32_t window_tokens() const { return window_tokens_; }
  void ExchangeState(StateStream& stream) {
    stream.ExchangeCount(window_tokens_, options_.budget_tokens);
    stream.Exchange(n_tokens_);
    stream.Exchange(last_move_tokens_);
    stream.Exchange(last_move_change_);
    stream.Exchange(has_moved_);
    stream.Exchange(frozen_);
  }
  // False during warm-up: only the budget itself may force a page out.
  bool may_evict() const { return n_tokens_ >= options_.warmup_tokens; }
  // The configured rule; score_threshold once the hybrid strategy has frozen.
  EvictionRule rule() const;

 private:
  void CheckLimits() const;
  uint32_t TargetTokens(double change) const;

  Options options_;
  uint32_t window_tokens_ = 0;
  uint32_t n_tokens_ = 0;
  uint32_t last_move_tokens_ = 0;  // n_tokens at the last move
  double last_move_change_ = 0;
  bool has_moved_ = false;
  bool frozen_ = false;
};

}  // namespace lkv
