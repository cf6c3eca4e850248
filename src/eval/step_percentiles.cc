#include "eval/step_percentiles.h"

#include <algorithm>
#include <vector>

#include "eval/percentile.h"

namespace lkv {

StepPercentiles SummarizeSteps(std::span<const float> step_us) {
  if (step_us.empty()) return {};
  std::vector<float> sorted(step_us.begin(), step_us.end());
  std::sort(sorted.begin(), sorted.end());
  auto at = [&](double percent) -> double {
    return Percentile<float>(sorted, percent);
  };
  return {at(50), at(95), at(99), sorted.back()};
}

}  // namespace lkv
