// The closed loop: what budgets and policies change in the predictions, on
// windows of given texts.
//
// A window is a context, read as a prompt, and forced tokens, fed one by one:
// what follows in the text, or a part of the context once more. The predictions
// behind these are compared with those of the full cache on the same window
// (eval/fidelity.h), so that policies can be compared window by window: windows
// differ from each other more than policies do.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "eval/context_reading.h"
#include "eval/fidelity.h"
#include "eval/tokenized_text.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

// The forced tokens of a window.
enum class Continuation {
  kNext,    // what follows the context in the text
  kReplay,  // the context's own tokens from its first third on, once more: what
            // is wanted is old, and no policy that throws away can have known
};

// Options of the cache to compare beside policies by name, at budgets of their
// own.
struct ClosedLoopCandidate {
  std::string name;
  CacheOptions cache;           // budget and reading are replaced
  std::vector<Budget> budgets;  // shares are of a window's tokens, and raised
                                // to the smallest that can be kept
};

struct ClosedLoopOptions {
  std::vector<std::string> policies;
  std::vector<Budget> budgets;  // of the policies; shares: see BudgetScope, and
                                // refused where they cannot be kept
  std::vector<ClosedLoopCandidate> candidates;
  uint32_t context_tokens = 3072;
  uint32_t forced_tokens = 256;
  Continuation continuation = Continuation::kNext;
  uint32_t windows_per_text = 5;  // evenly over the text; they may overlap
  PromptReading reading = PromptReading::kWhole;
  BudgetScope budget_scope = BudgetScope::kWindow;
  SeenQueries seen_queries = SeenQueries::kSampled;
  CacheOptions cache;       // policy, budget and reading are replaced
  bool noise_floor = true;  // measure it: one run more for each window
};

// What a sequence held of a window.
struct HeldOfWindow {
  // Tokens of the context that a lane held on average when the first token
  // followed it. A budget pays for more than these.
  uint32_t context_tokens = 0;
  // While the forced tokens were fed.
  double mean_bytes = 0;       // over the tokens
  uint64_t max_bytes = 0;      // after any of them
  double mean_read_bytes = 0;  // by attention, of a token
  uint64_t full_bytes = 0;     // what keeping everything takes at the end
};

// One policy or candidate at one budget.
struct ClosedLoopRow {
  std::string policy;  // its name
  Budget budget;
  std::vector<Fidelity> windows;        // by text, then place
  std::vector<HeldOfWindow> held = {};  // of the same windows
};

struct ClosedLoopReport {
  std::vector<std::string> window_names;  // "novel.txt at 1,024"
  // Of policies by budget, then policy; then of candidates, one after another.
  std::vector<ClosedLoopRow> rows;
  // The full cache with another 16-bit type: differences below it mean nothing.
  // Empty when not asked for.
  std::vector<Fidelity> noise_floor;
  // Somebody cancelled while the window behind these was measured.
  bool interrupted = false;
};

// Needs an engine with high activations. `progress` (may be empty) is told runs
// done and all. kInvalidArgument: an unknown policy, a text too short for a
// window, a context too short to be replayed, a budget below what the policies
// need, a budget of the context that
// is to hold while that is read. kCancelled: before one window was finished.
Result<ClosedLoopReport> RunClosedLoop(
    Engine& engine, std::span<const TokenizedText> texts,
    const ClosedLoopOptions& options,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled);

}  // namespace lkv
