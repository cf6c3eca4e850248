#include "eval/step_percentiles.h"

#include <gtest/gtest.h>

#include <vector>

namespace lkv {
namespace {

TEST(StepPercentilesTest, NearestRankOfAHundredSteps) {
  std::vector<float> step_us;
  for (int i = 100; i >= 1; --i) step_us.push_back(static_cast<float>(i));
  const StepPercentiles p = SummarizeSteps(step_us);
  EXPECT_EQ(p.p50_us, 50);
  EXPECT_EQ(p.p95_us, 95);
  EXPECT_EQ(p.p99_us, 99);
  EXPECT_EQ(p.max_us, 100);
}

TEST(StepPercentilesTest, OneStepIsEveryPercentile) {
  const StepPercentiles p = SummarizeSteps(std::vector<float>{7});
  EXPECT_EQ(p.p50_us, 7);
  EXPECT_EQ(p.max_us, 7);
}

TEST(StepPercentilesTest, NoStepsAreZero) {
  EXPECT_EQ(SummarizeSteps({}).max_us, 0);
}

}  // namespace
}  // namespace lkv
