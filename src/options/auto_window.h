// The source's size formulas, for window keys set to "auto". Pure.
#pragma once

#include <cstdint>

#include "lookaheadkv/options.h"

namespace lkv {

// What the formulas need to know about a model and a request.
struct WindowSurroundings {
  uint64_t max_seq_tokens = 0;  // longest sequence: prompt + new tokens, or ctx
  uint64_t memory_bytes = 0;    // of the device; on a CPU, of the machine
  uint64_t bytes_per_token = 0;  // over all layers and KV heads
};

// Fills base_window_tokens with max(1024, 0.25 * max_seq_tokens) and
// max_window_tokens with min(memory_bytes / 2 / bytes_per_token, 1.5 * base),
// where the key is "auto"; a number given by hand stays, and 1.5 * base uses
// it. Afterwards no key is "auto". A maximum without any base takes 1.5 times
// the base that "auto" would give.
// Requires bytes_per_token > 0 when max_window is "auto".
void ResolveAutoWindows(const WindowSurroundings& surroundings,
                        CacheOptions* options);

}  // namespace lkv
