// The closed loop: what budgets and policies change in the predictions, on
// windows of given texts.
//
// A window is a context, read as a prompt, and forced tokens that follow it in
// the text, fed one by one. The predictions behind these are compared with
// those of the full cache on the same window (eval/fidelity.h), so that
// policies can be compared window by window: windows differ from each other
// more than policies do.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "eval/fidelity.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

// When the context is cut down to the budget.
enum class ContextReading {
  kWithinBudget,  // while it is read, as the budget demands
  kWhole,         // once it has been read whole: more memory, later tokens of
                  // it are computed from all earlier ones
};

// What a budget is a share of, where the context is read whole.
enum class BudgetScope {
  kWindow,   // the window; it holds while tokens follow, which others leave for
  kContext,  // the context; tokens that follow come on top and nothing leaves
};

// Which queries of the context policies see (cache/observed_queries.h).
enum class SeenQueries {
  kSampled,  // as in use: every 8th, and the last 32 of a chunk
  kAll,      // what policies that sum attention are defined on; reads slower
};

struct ClosedLoopText {
  std::string name;
  std::vector<int32_t> tokens;
};

struct ClosedLoopOptions {
  std::vector<std::string> policies;  // or `repeat` (policy/repeat_policy.h)
  std::vector<double> budgets;        // shares, see BudgetScope
  uint32_t context_tokens = 3072;
  uint32_t forced_tokens = 256;
  uint32_t windows_per_text = 5;  // evenly over the text; they may overlap
  ContextReading reading = ContextReading::kWhole;
  BudgetScope budget_scope = BudgetScope::kWindow;
  SeenQueries seen_queries = SeenQueries::kSampled;
  CacheOptions cache;  // policy and budget are replaced
};

// One policy at one budget.
struct ClosedLoopRow {
  std::string policy;
  double budget = 0;
  std::vector<Fidelity> windows;  // by text, then place
  // By window: tokens of the context that a lane held on average when the first
  // token followed it. A budget pays for more than these.
  std::vector<uint32_t> held_tokens;
};

struct ClosedLoopReport {
  std::vector<std::string> window_names;  // "novel.txt at 1,024"
  std::vector<ClosedLoopRow> rows;        // by budget, then policy
  // The full cache with another 16-bit type: differences below it mean nothing.
  std::vector<Fidelity> noise_floor;
};

// Needs an engine with high activations. `progress` (may be empty) is told runs
// done and all. kInvalidArgument: an unknown policy, a text too short for a
// window, a budget below what the policies need, a budget of the context that
// is to hold while that is read.
Result<ClosedLoopReport> RunClosedLoop(
    Engine& engine, std::span<const ClosedLoopText> texts,
    const ClosedLoopOptions& options,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled);

}  // namespace lkv
