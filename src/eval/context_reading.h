// Reads a context under a policy and leaves its cache within given budgets:
// what every measurement in closed loop begins with.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

// What a budget given as a share is a share of, where a context is read whole.
enum class BudgetScope {
  kWindow,   // context and what follows it; the budget holds while that comes,
             // and others leave for it
  kContext,  // the context; what follows comes on top, and nothing leaves
};

// Which queries of a context policies see (cache/observed_queries.h).
enum class SeenQueries {
  kSampled,  // as in use: every 8th, and the last 32 of a chunk
  kAll,      // what policies that sum attention are defined on; reads slower
};

// How contexts are read under one policy.
struct ReadingPolicy {
  CacheOptions cache;  // its budget is not used
  // When the context is cut down. (Not by the engine, as the cache's own option
  // says: a whole reading serves all budgets here.)
  PromptReading reading = PromptReading::kWhole;
};

// `full`, which cannot be cut down, reads within its budget.
ReadingPolicy ReadingPolicyOf(const CacheOptions& cache, PromptReading reading);

// By the names of policies. kInvalidArgument: an unknown name, or `repeat`
// without the whole context.
Result<std::vector<ReadingPolicy>> ReadingPoliciesOf(
    std::span<const std::string> names, const CacheOptions& cache,
    PromptReading reading);

// The full cache: nothing to cut.
ReadingPolicy KeepingAll(const CacheOptions& cache);

// A context that is read, and the most tokens that may follow it.
struct ContextToRead {
  std::span<const int32_t> tokens;  // at least one
  uint32_t n_new = 0;
  BudgetScope scope = BudgetScope::kWindow;  // of one that is read whole
  SeenQueries seen = SeenQueries::kSampled;
  // A share of the window that is too small for a cache: raised by it, for
  // those who report what was held, or refused.
  bool raises_shares = false;
};

// go_on(b, sequence): `sequence` has read the context and holds it within
// budget b.
using OnContext = std::function<Status(size_t b, Sequence& sequence)>;

// Calls `go_on` for each of `budgets` in turn. A context that is read whole is
// read once, and a fork of it cut down to each budget. Nobody else may observe
// the engine. kInvalidArgument: a budget below what the policy needs.
// kCancelled when `cancelled` (may be empty) says so.
Status ReadWithinBudgets(Engine& engine, const ContextToRead& context,
                         const ReadingPolicy& policy,
                         std::span<const Budget> budgets,
                         const OnContext& go_on,
                         const std::function<bool()>& cancelled);

}  // namespace lkv
