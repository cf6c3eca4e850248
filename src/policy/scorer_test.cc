#include "policy/scorer.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace lkv {
namespace {

TEST(ScorerTest, DecayWeightsSumToTheFormulasNumbers) {
  EXPECT_FLOAT_EQ(DecayWeightSum(1, 0.9f), 1);
  EXPECT_NEAR(DecayWeightSum(4, 0.9f), 3.439, 1e-5);
  EXPECT_NEAR(DecayWeightSum(12, 0.9f), 7.17570, 1e-4);
}

TEST(ScorerTest, ValueNormWeighsNearStepsMore) {
  // 2 * (0.1 + 0.9 * 0.2 + 0.81 * 0.3 + 0.729 * 0.4) / 3.439
  EXPECT_NEAR(
      ValueNormScore(2, std::vector<float>{0.1f, 0.2f, 0.3f, 0.4f}, 0.9f),
      2 * 0.8146 / 3.439, 1e-6);
  EXPECT_GT(ValueNormScore(1, std::vector<float>{0.4f, 0.1f}, 0.9f),
            ValueNormScore(1, std::vector<float>{0.1f, 0.4f}, 0.9f));
}

TEST(ScorerTest, ValueNormOfAFlatForecastIsTheSameForAnyNumberOfSteps) {
  for (size_t n_steps : {1, 4, 12, 64}) {
    std::vector<float> flat(n_steps, 0.01f);
    EXPECT_NEAR(ValueNormScore(3, flat, 0.9f), 0.03, 1e-7) << n_steps;
  }
}

// The claim behind the formula, checked on vectors: leave token 0 out,
// renormalise, measure how far the output moved.
TEST(ScorerTest, OutputErrorIsTheDistanceThatLeavingATokenOutMoves) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  constexpr int kTokens = 5;
  constexpr int kDim = 8;
  for (int round = 0; round < 20; ++round) {
    double a[kTokens];
    double sum = 0;
    for (double& x : a) sum += x = std::exp(normal(random));
    for (double& x : a) x /= sum;
    double v[kTokens][kDim];
    double moved = 0;
    double distance = 0;
    for (int d = 0; d < kDim; ++d) {
      double full = 0;
      double without = 0;
      for (int i = 0; i < kTokens; ++i) {
        v[i][d] = normal(random);
        full += a[i] * v[i][d];
        if (i > 0) without += a[i] / (1 - a[0]) * v[i][d];
      }
      moved += (full - without) * (full - without);
      distance += (v[0][d] - full) * (v[0][d] - full);
    }
    EXPECT_NEAR(OutputErrorScore(static_cast<float>(a[0]),
                                 static_cast<float>(std::sqrt(distance))),
                std::sqrt(moved), 1e-4 * std::sqrt(moved));
  }
}

TEST(ScorerTest, OutputErrorStaysFiniteWhenOneTokenHasAllAttention) {
  EXPECT_NEAR(OutputErrorScore(1, 2), 2 * 1000, 1);
  EXPECT_EQ(OutputErrorScore(1, 0), 0);
}

}  // namespace
}  // namespace lkv
