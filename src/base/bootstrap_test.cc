#include "base/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lkv {
namespace {

double MeanOf(const std::vector<double>& values,
              const std::vector<size_t>& draw) {
  double sum = 0;
  for (size_t i : draw) sum += values[i];
  return sum / static_cast<double>(draw.size());
}

TEST(ResamplesTest, IntervalOfAMeanIsThatOfTheNormalDistribution) {
  std::vector<double> values;
  for (int i = 0; i < 400; ++i) values.push_back(i % 2);
  const Resamples resamples(values.size());
  const Interval ci = resamples.Ci95(
      [&](const std::vector<size_t>& draw) { return MeanOf(values, draw); });
  // 1.96 standard errors: 0.5 / sqrt(400) each.
  EXPECT_NEAR(ci.low, 0.5 - 1.96 * 0.025, 0.006);
  EXPECT_NEAR(ci.high, 0.5 + 1.96 * 0.025, 0.006);
}

TEST(ResamplesTest, AConstantHasNoWidth) {
  const Interval ci =
      Resamples(3).Ci95([](const std::vector<size_t>&) { return 2.0; });
  EXPECT_EQ(ci.low, 2);
  EXPECT_EQ(ci.high, 2);
}

TEST(ResamplesTest, PairsKeepTheirSamplesTogether) {
  // Windows differ by a factor of 100, policies by exactly a half.
  const std::vector<double> one = {1, 10, 100};
  const std::vector<double> other = {2, 20, 200};
  const Interval ratio =
      Resamples(3).Ci95([&](const std::vector<size_t>& draw) {
        return MeanOf(one, draw) / MeanOf(other, draw);
      });
  EXPECT_EQ(ratio.low, 0.5);
  EXPECT_EQ(ratio.high, 0.5);
}

}  // namespace
}  // namespace lkv
