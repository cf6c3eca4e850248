// Shared by the tests of the paged cache: how it is made, and a small sequence.
#pragma once

#include <cstdint>

#include "cache/kv_cache.h"
#include "cache/paged_kv_cache.h"
#include "kernels/kernel_table.h"

namespace lkv {

inline PagedKvCacheOptions Threads(uint32_t n) {
  return {.kernels = SelectKernels(nullptr), .max_threads = n};
}

// What is simple to foretell: whole pages leave, as many of every lane.
inline void EvictWholePages(CacheOptions* options) {
  options->unit = EvictionUnit::kPage;
  options->lane_spread = LaneSpreadMode::kEqual;
}

inline SequenceOptions Small(PolicyName policy, Budget budget) {
  SequenceOptions options;
  options.cache.policy = policy;
  options.cache.budget = budget;
  options.cache.recent_tokens = 32;
  EvictWholePages(&options.cache);
  options.prompt_tokens = 700;
  options.max_new_tokens = 300;
  return options;
}

// A chat of up to `max_tokens` under a quarter, small in what it protects.
inline SequenceOptions Chat(PolicyName policy, uint32_t max_tokens) {
  SequenceOptions options =
      Small(policy, {.kind = Budget::Kind::kShare, .share = 0.25});
  options.prompt_tokens = 0;
  options.max_new_tokens = 0;
  options.max_tokens = max_tokens;
  return options;
}

}  // namespace lkv
