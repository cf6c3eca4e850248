// Shared by the tests of what leaves the paged cache: a shape, sequences that
// evict, what a lane holds.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/paged_kv_cache.h"
#include "cache/testing_options.h"

namespace lkv {

inline constexpr KvShape kShape{
    .n_layers = 2, .n_kv_heads = 3, .group = 2, .head_dim = 64};

// Small protection, so that small caches have something to choose from.
inline SequenceOptions Evicting(PolicyName policy, uint32_t budget_tokens) {
  SequenceOptions options;
  options.cache.policy = policy;
  options.cache.budget = {.kind = Budget::Kind::kTokens,
                          .amount = budget_tokens};
  options.cache.sink_tokens = 4;
  options.cache.recent_tokens = 32;
  EvictWholePages(&options.cache);
  options.prompt_tokens = 600;
  options.max_new_tokens = 400;
  return options;
}

// The smallest budget that pays for `pages` pages in every lane, and not one
// more in any.
inline SequenceOptions WithPagesPerLane(SequenceOptions options,
                                        uint32_t pages) {
  uint64_t too_low = 0;
  uint64_t enough =
      pages * kPageTokens * kShape.bytes_per_token(KvType::kF16) * 2;
  options.cache.budget.kind = Budget::Kind::kBytes;
  while (enough - too_low > 1) {
    const uint64_t middle = (too_low + enough) / 2;
    options.cache.budget.amount = middle;
    PagedKvCache cache(kShape, Threads(1));
    Result<SequenceId> id = cache.AddSequence(options);
    const bool fits =
        id.ok() && cache.Stats(id.value()).window_tokens >= pages * kPageTokens;
    (fits ? enough : too_low) = middle;
  }
  options.cache.budget.amount = enough;
  return options;
}

// Positions that lane `lane` holds, ascending.
inline std::vector<uint32_t> PositionsOf(const PagedKvCache& cache,
                                         SequenceId id, uint32_t lane) {
  return cache.ResidentPositions(id, lane / kShape.n_kv_heads,
                                 lane % kShape.n_kv_heads);
}

}  // namespace lkv
