// The conditions of a comparison in the design sketch that this project grew
// out of, so that anybody can hold what is measured here beside what it says.
// Pure.
#pragma once

#include <cstdint>

#include "eval/demo.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

// What the sketch says, of another model on another machine, without naming
// either or publishing a measurement. Shown, not claimed.
struct SourceClaims {
  static constexpr double kTokensPerSecondBefore = 42.7;
  static constexpr double kTokensPerSecondAfter = 89.3;
  static constexpr double kHitRateBefore = 0.61;  // which hits, it leaves open
  static constexpr double kHitRateAfter = 0.86;
  static constexpr double kSavedMemory = 0.35;  // of weights and KV together
};

// 1,024 tokens in, 2,048 out, no question.
DemoOptions SourceTableOptions();

// The budget at which weights and KV of a whole run take the share `saved` less
// than with a KV cache of kv_bytes, which keeps everything. kInvalidArgument
// where keeping nothing would not save as much. Requires 0 < saved < 1.
Result<Budget> BudgetThatSaves(double saved, uint64_t weight_bytes,
                               uint64_t kv_bytes);

// What a row saves of weights and KV together, against a cache that held at
// most full_kv_bytes.
double SavedMemory(const DemoRow& row, uint64_t full_kv_bytes,
                   uint64_t weight_bytes);

}  // namespace lkv
