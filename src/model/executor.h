// Executor: one forward pass of a transformer over a batch of new tokens.
//
// Two implementations: `reference` (f32, one thread, readable: the truth) and
// `cpu` (re-tiled weights, dispatched kernels, a thread team). Both read and
// write attention state only through KvCache, so either runs over any cache.
//
// Thread rule: one caller. Cost of Step: one pass over the weights.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "cache/kv_cache.h"
#include "lookaheadkv/status.h"
#include "model/architecture.h"

namespace lkv {

// What a step computes. `tokens` holds the new tokens of all entries, one
// entry after the other; positions continue each sequence.
struct StepBatch {
  std::span<const int32_t> tokens;
  std::span<const StepEntry> entries;
  // Position of each token, [tokens.size()].
  std::span<const uint32_t> positions;
  // Indices into tokens whose logits are wanted, ascending.
  std::span<const uint32_t> logit_rows;
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const Architecture& architecture() const = 0;
  // Bytes of weights held in memory.
  virtual uint64_t weight_bytes() const = 0;
  // Most tokens of one step.
  virtual uint32_t max_step_tokens() const = 0;
  // Wall time spent in the cache's BeginStep and EndStep (eviction, scoring,
  // planning) since the executor was made.
  virtual double policy_seconds() const = 0;

  // Runs the step and writes logits [logit_rows.size(), vocab_size]. Checks
  // `cancelled` (may be empty) once per layer; a cancelled step returns
  // kCancelled and leaves the sequences to be removed.
  virtual Status Step(const StepBatch& batch, KvCache& cache,
                      std::span<float> logits,
                      const std::function<bool()>& cancelled) = 0;
};

}  // namespace lkv
