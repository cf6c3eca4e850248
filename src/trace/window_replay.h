// What the window controller does along a recorded text: the pattern detector
// and the controller of the cache, called as the cache calls them while it
// reads a text token by token.
//
// Open loop: nothing is evicted, so the change of pattern is that of the text
// under the full cache, and all laws are judged by the same one.
//
// Pure but for reading the trace. Memory: the page rows of all lanes, 130 MB
// for 90 lanes of 3,072 steps (it grows with the square of the steps). Cost:
// reading, and O(steps * lanes * pages): 3 s for such a trace and two threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_team.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"
#include "policy/window_controller.h"
#include "trace/trace_reader.h"

namespace lkv {

// The change of pattern after every step of the text, nats. kCancelled when
// `cancelled` (may be empty) says so; else what reading the trace says.
// `progress` (may be empty) is told lanes read and all.
Result<std::vector<double>> ReplayPatternChange(
    const TraceReader& trace, const CacheOptions& options, ThreadTeam& team,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled);

// The controller's options for a text of n_steps tokens that may hold a share
// `budget` of it. Without window keys the limits are what the symmetric law
// spans: at most the budget, a quarter of it as the base, a sixteenth at least.
WindowController::Options ReplayedWindow(const CacheOptions& options,
                                         double budget, uint32_t n_steps);

// The window after every step, tokens.
std::vector<uint32_t> ReplayWindow(std::span<const double> change,
                                   const WindowController::Options& options);

// How a window went along a part of a text.
struct WindowSummary {
  // A window that grows has grown behind so many tokens: averages with
  // half-lives of 8 and 64 tokens, and a move every 32.
  static constexpr uint32_t kReachTokens = 128;

  double mean_tokens = 0;
  uint32_t min_tokens = 0, max_tokens = 0;
  uint32_t first_max_tokens = 0;  // the widest of the first kReachTokens
  uint32_t end_tokens = 0;
  uint32_t n_moves = 0;
  // Moves against the direction of the move before: what would be thrash.
  uint32_t n_reversals = 0;
};

// Moves are counted between the steps of `window`. Requires at least one step.
WindowSummary SummarizeWindow(std::span<const uint32_t> window);

}  // namespace lkv
