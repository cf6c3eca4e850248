// Sum over the slots of one page.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace lkv {

// Sum of values[0 .. kPageTokens). Four running sums: one would wait for the
// addition before it sixteen times, and pages are summed by the thousand. The
// order is fixed, so the result is the same on every machine.
inline float SumPage(const float* values) {
  float partial[4] = {};
  for (uint32_t i = 0; i < kPageTokens; i += 4) {
    for (uint32_t j = 0; j < 4; ++j) partial[j] += values[i + j];
  }
  return (partial[0] + partial[2]) + (partial[1] + partial[3]);
}

}  // namespace lkv
