// Sum and maximum over the slots of one page.
#pragma once

#include <algorithm>
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

// The largest of values[0 .. kPageTokens), four at a time for the same reason.
inline float MaxOfPage(const float* values) {
  float partial[4] = {values[0], values[1], values[2], values[3]};
  for (uint32_t i = 4; i < kPageTokens; i += 4) {
    for (uint32_t j = 0; j < 4; ++j) {
      partial[j] = std::max(partial[j], values[i + j]);
    }
  }
  return std::max(std::max(partial[0], partial[2]),
                  std::max(partial[1], partial[3]));
}

}  // namespace lkv
