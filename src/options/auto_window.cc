#include "options/auto_window.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace lkv {
namespace {

constexpr uint64_t kSmallestAutoBase = 1024;

uint32_t ToTokens(uint64_t tokens) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(tokens, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

void ResolveAutoWindows(const WindowSurroundings& surroundings,
                        CacheOptions* options) {
  const uint32_t auto_base =
      ToTokens(std::max(kSmallestAutoBase, surroundings.max_seq_tokens / 4));
  if (options->base_window_auto) {
    options->base_window_tokens = auto_base;
    options->base_window_auto = false;
  }
  if (options->max_window_auto) {
    CHECK(surroundings.bytes_per_token > 0);
    const uint64_t base = options->base_window_tokens.value_or(auto_base);
    const uint64_t half_memory_tokens =
        surroundings.memory_bytes / 2 / surroundings.bytes_per_token;
    options->max_window_tokens =
        ToTokens(std::min(half_memory_tokens, base * 3 / 2));
    options->max_window_auto = false;
  }
}

}  // namespace lkv
