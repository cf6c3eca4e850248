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

}  // namespace lkv
