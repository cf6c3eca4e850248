// Window keys resolved for one sequence: what the controller may choose from.
// Pure functions.
#pragma once

#include <cstdint>

#include "lookaheadkv/options.h"

namespace lkv {

struct WindowLimits {
  uint32_t base_tokens = 0;
  uint32_t min_tokens = 0;
  uint32_t max_tokens = 0;
};

// True when the user gave at least one of base, min and max window.
bool HasWindowKeys(const CacheOptions& options);

// Without window keys: base = min = max = budget. Otherwise an explicit value
// beats `auto`, and what is neither given nor `auto` is as if it were `auto`:
//   base = max(1024, 0.25 * max_seq_tokens)
//   max  = min(memory_tokens / 2, 1.5 * base)   (the source's formulas, with
//          memory in tokens: bytes divided by bytes per token)
//   min  = base / 4, the lower end of the symmetric law
// A static window has min = max = base. At the end everything is capped by
// the budget, and min <= base <= max holds (max wins over base, base over min).
WindowLimits ResolveWindow(const CacheOptions& options, uint64_t max_seq_tokens,
                           uint64_t memory_tokens, uint64_t budget_tokens);

}  // namespace lkv
