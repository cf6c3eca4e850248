// StepPercentiles: how even the times of decode steps are.
#pragma once

#include <span>

namespace lkv {

struct StepPercentiles {
  double p50_us = 0;
  double p95_us = 0;
  double p99_us = 0;
  double max_us = 0;
};

// Nearest-rank percentiles; zeros when there are no steps.
StepPercentiles SummarizeSteps(std::span<const float> step_us);

}  // namespace lkv
