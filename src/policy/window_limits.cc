#include "policy/window_limits.h"

#include <algorithm>

namespace lkv {

bool HasWindowKeys(const CacheOptions& options) {
  return options.base_window_tokens.has_value() || options.base_window_auto ||
         options.min_window_tokens.has_value() ||
         options.max_window_tokens.has_value() || options.max_window_auto;
}

WindowLimits ResolveWindow(const CacheOptions& options, uint64_t max_seq_tokens,
                           uint64_t memory_tokens, uint64_t budget_tokens) {
  auto capped = [&](uint64_t tokens) {
    return static_cast<uint32_t>(std::min(tokens, budget_tokens));
  };
  if (!HasWindowKeys(options)) {
    return {capped(budget_tokens), capped(budget_tokens),
            capped(budget_tokens)};
  }
  uint64_t base = options.base_window_tokens.has_value()
                      ? *options.base_window_tokens
                      : std::max<uint64_t>(1024, max_seq_tokens / 4);
  if (options.window_strategy == WindowStrategy::kStatic) {
    return {capped(base), capped(base), capped(base)};
  }
  uint64_t max = options.max_window_tokens.has_value()
                     ? *options.max_window_tokens
                     : std::min(memory_tokens / 2, base * 3 / 2);
  base = std::min(base, max);
  uint64_t min = options.min_window_tokens.has_value()
                     ? *options.min_window_tokens
                     : base / 4;
  min = std::min(min, base);
  return {.base_tokens = capped(base),
          .min_tokens = capped(min),
          .max_tokens = capped(max)};
}

}  // namespace lkv
