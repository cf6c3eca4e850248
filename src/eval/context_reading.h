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

// When the context is cut down to the budget.
enum class ContextReading {
  kWithinBudget,  // while it is read, as the budget demands
  kWhole,         // once it has been read whole: more memory, later tokens of
                  // it are computed from all earlier ones
};

// How contexts are read under one policy.
struct ReadingPolicy {
  CacheOptions cache;  // its budget is not used
  ContextReading reading = ContextReading::kWhole;
  bool rereads = false;  // the policy is `repeat` (policy/repeat_policy.h)
};

// By the names of policies, `repeat` among them. `full`, which cannot be cut
// down, reads within its budget. kInvalidArgument: an unknown name, or `repeat`
// without the whole context.
Result<std::vector<ReadingPolicy>> ReadingPoliciesOf(
    std::span<const std::string> names, const CacheOptions& cache,
    ContextReading reading);

// The full cache: nothing to cut.
ReadingPolicy KeepingAll(const CacheOptions& cache);

// A context that is read, and the most tokens that may follow it. A budget
// given as a share is one of both together.
struct ContextToRead {
  std::span<const int32_t> tokens;  // at least one
  uint32_t n_new = 0;
};

// go_on(b, sequence): `sequence` has read the context and holds it within
// budget b.
using OnContext = std::function<Status(size_t b, Sequence& sequence)>;

// Calls `go_on` for each of `budgets` in turn. A context that is read whole is
// read once, and a fork of it cut down to each budget. kInvalidArgument: a
// budget below what the policy needs. kCancelled when `cancelled` (may be
// empty) says so.
Status ReadWithinBudgets(Engine& engine, const ContextToRead& context,
                         const ReadingPolicy& policy,
                         std::span<const Budget> budgets,
                         const OnContext& go_on,
                         const std::function<bool()>& cancelled);

}  // namespace lkv
