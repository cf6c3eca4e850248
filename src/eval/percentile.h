// Percentiles as every report of this folder means them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace lkv {

// Nearest rank: the smallest value that at least `percent` of all do not
// exceed. Requires ascending values, at least one.
template <typename T>
T Percentile(std::span<const T> sorted, double percent) {
  const double rank =
      std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

}  // namespace lkv
