#include "eval/step_percentiles.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lkv {

StepPercentiles SummarizeSteps(std::span<const float> step_us) {
  if (step_us.empty()) return {};
  std::vector<float> sorted(step_us.begin(), step_us.end());
  std::sort(sorted.begin(), sorted.end());
  auto at = [&](double percent) -> double {
    const double rank =
        std::ceil(percent / 100 * static_cast<double>(sorted.size()));
    return sorted[static_cast<size_t>(rank) - 1];
  };
  return {at(50), at(95), at(99), sorted.back()};
}

}  // namespace lkv
