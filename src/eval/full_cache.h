// The full cache that policies are compared with. Pure.
#pragma once

#include "lookaheadkv/options.h"

namespace lkv {

// `cache` with everything kept.
inline CacheOptions FullCacheOf(CacheOptions cache) {
  cache.policy = PolicyName::kFull;
  cache.budget = Budget();
  return cache;
}

// The same with another 16-bit type, f16 if it is not that already: what it
// predicts otherwise is rounding, the noise floor of a comparison.
inline CacheOptions FullCacheRoundedOtherwise(const CacheOptions& cache) {
  CacheOptions full = FullCacheOf(cache);
  full.kv_type =
      full.kv_type == KvTypeName::kF16 ? KvTypeName::kBF16 : KvTypeName::kF16;
  return full;
}

}  // namespace lkv
