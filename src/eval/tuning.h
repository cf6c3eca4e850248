// Tuning: which settings of the cache, at how small a budget, suit given texts.
// The search of `lkv tune`, over a function that measures; the method is ours.
//
// Settings are axes of choices (eval/tuning_space.h); choice 0 is the default.
//   1. The default at every share of memory, on one window: where does the goal
//      lie?
//   2. Every other choice alone, at the share there. Windows are added while
//      the worse half of the choices leaves (successive halving), to three.
//   3. The best choices of different axes together, while that helps.
//   4. The default at every share and the challenger found so on the other
//      windows. These had no part in the choice of the challenger, which
//      replaces the default only if it is better on them beyond doubt; if so,
//      it is measured at every share, too.
//   5. For an agreement: the share that reaches it, by halving the gap.
//
// Better: less KL than the default has with the same memory on the same window,
// log KL being interpolated over the default's memory at all shares. So
// settings that hold less than the budget can be compared with those that fill
// it; below the least memory of the default they must do better than it does
// there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/bootstrap.h"
#include "lookaheadkv/status.h"

namespace lkv {

struct TuningCandidate {
  std::vector<uint32_t> choices;  // one for each axis
  double share = 0;               // the budget, of a window's tokens

  bool operator==(const TuningCandidate&) const = default;
};

// One candidate on one window.
struct TuningFigures {
  double kl_mean = 0;         // nats per token
  double top1_agreement = 1;  // share of tokens
  double resident_bytes_mean = 0;
  uint64_t resident_bytes_max = 0;
  uint64_t full_bytes = 0;  // what keeping everything takes
};

// Measures candidates on a window; every call also costs a run of the full
// cache. kCancelled when it was stopped: then nothing of the call is kept.
using MeasureOnWindow = std::function<Result<std::vector<TuningFigures>>(
    uint32_t window, std::span<const TuningCandidate> candidates)>;

struct TuningGoal {
  enum class Kind {
    kAgreement,  // the least memory with at least this top-1 agreement
    kMemory,     // the least KL within this share of memory
  };
  Kind kind = Kind::kAgreement;
  double value = 0.95;
};

struct TuningProblem {
  std::vector<uint32_t> n_choices;  // of each axis, the default among them
  // Budgets to try, ascending, at least two; a goal of memory is one of them.
  std::vector<double> shares;
  TuningGoal goal;
  uint32_t n_windows = 1;  // that do not overlap, in the order to be used
  double limit_s = 600;
};

// A candidate and what was measured of it: figures[w] of window w.
struct TuningTrial {
  TuningCandidate candidate;
  std::vector<std::optional<TuningFigures>> figures;
  // Its KL over the default's with the same memory: geometric mean over the
  // windows that choose. None: it was measured on the others only.
  std::optional<double> kl_ratio;

  // Those of the first n windows that it has.
  std::vector<uint32_t> WindowsOf(uint32_t n) const;
};

// Means of a trial over some windows, all of which it has.
struct TuningMeans {
  double kl = 0;
  double agreement = 0;
  double resident_bytes = 0;
  uint64_t resident_bytes_max = 0;  // the most on any window
  double full_bytes = 0;
};
TuningMeans MeansOf(const TuningTrial& trial,
                    std::span<const uint32_t> windows);

// The challenger against the default, at one share, on the frontier's windows.
struct TuningDuel {
  std::vector<uint32_t> challenger;  // choices
  double share = 0;
  double kl_ratio = 1;  // at equal memory; geometric mean over windows
  std::optional<Interval> kl_ratio_ci95;  // none of fewer than kMinJudged
  bool is_won = false;
};

struct TuningResult {
  enum class End { kDone, kTimeLimit, kInterrupted };

  // Windows that replace a default must have: five of one sign come by chance
  // once in 32 times on either side.
  static constexpr uint32_t kMinJudged = 5;

  std::vector<TuningTrial> trials;  // all, in the order of their first run
  uint32_t n_choosing = 0;          // the first windows: they chose
  // What the answer rests on: trials (places in `trials`) that were all
  // measured on all of `windows`, by memory.
  std::vector<size_t> frontier;
  std::vector<uint32_t> windows;
  size_t best = 0;  // of `trials`; where the goal is not reached, the nearest
  bool is_reached = false;
  std::optional<TuningDuel> duel;  // none: no choice beat the default
  uint32_t n_tried = 0;            // settings and budgets
  uint32_t n_runs = 0;             // of windows, full caches not counted
  End end = End::kDone;
};

// Requires what TuningProblem says. `seconds` is the time since the search
// began: nothing is begun that, at the cost of what came before, would end
// after limit_s; it is up to `measure` to stop what takes longer. The same
// figures give the same result but for where the time ends it.
//
// kInvalidArgument: the time was not enough for the default on one window.
// kCancelled: stopped before that by somebody else. Failures of `measure`.
Result<TuningResult> Tune(const TuningProblem& problem,
                          const MeasureOnWindow& measure,
                          const std::function<double()>& seconds);

}  // namespace lkv
