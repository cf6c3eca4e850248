#include "policy/ema_predictor.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "policy/non_negative_f16.h"
#include "policy/scorer.h"

namespace lkv {
namespace {

constexpr PolicyCapacity kCapacity = {.n_lanes = 2, .pages_per_lane = 16};
const KernelTable& kKernels = *SelectKernels(nullptr);

std::vector<float> PredictAll(const EmaPredictor& predictor, uint32_t lane,
                              uint32_t n) {
  std::vector<float> out(n);
  predictor.Predict(lane, 0, out);
  return out;
}

TEST(NonNegativeF16Test, WidensEveryFiniteHalfExactly) {
  std::vector<uint16_t> halves(0x7c00);
  for (uint32_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<uint16_t>(i);
  }
  std::vector<float> wide(halves.size());
  WidenNonNegativeF16(halves.data(), halves.size(), wide.data());
  for (uint32_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(wide[i], F16ToF32(halves[i])) << i;
  }
}

TEST(EmaPredictorTest, ForgetsHalfInEightTokensPerPredictionStep) {
  for (uint32_t n_steps : {1u, 4u, 12u, 64u}) {
    EmaPredictor predictor({.prediction_steps = n_steps}, kCapacity, kKernels);
    std::vector<float> mass = {0.01f};
    predictor.AddSlots(0, 0, 1);
    for (int i = 0; i < 5000; ++i) predictor.Observe(0, mass.data(), 1, 1);
    float settled = PredictAll(predictor, 0, 1)[0];
    mass[0] = 0;
    for (uint32_t i = 0; i < 8 * n_steps; ++i) {
      predictor.Observe(0, mass.data(), 1, 1);
    }
    EXPECT_NEAR(PredictAll(predictor, 0, 1)[0] / settled, 0.5, 0.05) << n_steps;
  }
}

TEST(EmaPredictorTest, FollowsTheMeanOfVaryingMasses) {
  std::mt19937 random(29);
  std::exponential_distribution<float> varying(1);
  for (uint32_t n_steps : {1u, 4u, 12u, 64u}) {
    EmaPredictor predictor({.prediction_steps = n_steps}, kCapacity, kKernels);
    std::vector<float> mass(64);
    predictor.AddSlots(0, 0, 64);
    std::vector<double> exact(64);
    double keep = std::exp2(-1.0 / (8 * n_steps));
    for (int t = 0; t < 3000; ++t) {
      for (uint32_t i = 0; i < 64; ++i) {
        mass[i] = varying(random) * 1e-4f * static_cast<float>(1 + i);
        exact[i] = keep * exact[i] + (1 - keep) * mass[i];
      }
      predictor.Observe(0, mass.data(), 64, 1);
    }
    std::vector<float> out = PredictAll(predictor, 0, 64);
    for (uint32_t i = 0; i < 64; ++i) {
      EXPECT_NEAR(out[i] / exact[i], 1, 0.05) << n_steps << " slot " << i;
    }
  }
}

TEST(EmaPredictorTest, AgesCountTokensNotCalls) {
  EmaPredictor each({.prediction_steps = 4}, kCapacity, kKernels);
  EmaPredictor sampled({.prediction_steps = 4}, kCapacity, kKernels);
  std::vector<float> mass = {0.02f, 0.001f};
  each.AddSlots(0, 0, 2);
  sampled.AddSlots(0, 0, 2);
  for (int i = 0; i < 16; ++i) each.Observe(0, mass.data(), 2, 1);
  for (int i = 0; i < 2; ++i) sampled.Observe(0, mass.data(), 2, 8);
  for (uint32_t slot : {0u, 1u}) {
    EXPECT_NEAR(PredictAll(each, 0, 2)[slot] / PredictAll(sampled, 0, 2)[slot],
                1, 0.01);
  }
}

TEST(EmaPredictorTest, WhatIsNotObservedKeepsItsValue) {
  EmaPredictor predictor({.prediction_steps = 4}, kCapacity, kKernels);
  std::vector<float> mass(20, 0.01f);
  predictor.AddSlots(0, 0, 20);
  predictor.Observe(0, mass.data(), 20, 1);
  float before = PredictAll(predictor, 0, 20)[19];
  for (int i = 0; i < 100; ++i) predictor.Observe(0, mass.data(), 10, 1);
  EXPECT_EQ(PredictAll(predictor, 0, 20)[19], before);
}

TEST(EmaPredictorTest, SmallMassesSurviveTheHalf) {
  EmaPredictor predictor({.prediction_steps = 4}, kCapacity, kKernels);
  std::vector<float> mass = {1.0f / 131072, 1e-7f};
  predictor.AddSlots(0, 0, 2);
  for (int i = 0; i < 1000; ++i) predictor.Observe(0, mass.data(), 2, 1);
  std::vector<float> out = PredictAll(predictor, 0, 2);
  EXPECT_NEAR(out[0] * 131072, 1, 0.05);
  EXPECT_NEAR(out[1] * 1e7f, 1, 0.1);
}

TEST(EmaPredictorTest, FreshTokensStartLikeTheYoungestContestablePage) {
  EmaPredictor predictor(
      {.prediction_steps = 4, .ends = {.sink_tokens = 4, .recent_tokens = 32}},
      kCapacity, kKernels);
  predictor.AddSlots(0, 0, 80);  // contestable: pages 1 and 2
  std::vector<float> mass(80, 0.5f);
  for (uint32_t i = 32; i < 48; ++i) mass[i] = i % 2 == 0 ? 0.001f : 0.003f;
  for (int i = 0; i < 500; ++i) predictor.Observe(0, mass.data(), 80, 1);
  predictor.AddSlots(0, 80, 1);
  EXPECT_NEAR(PredictAll(predictor, 0, 81)[80], 0.002, 0.0001);
  // Without a contestable page there is nothing to learn from.
  predictor.AddSlots(1, 0, 16);
  EXPECT_EQ(PredictAll(predictor, 1, 16)[3], 0);
}

TEST(EmaPredictorTest, TheFlatForecastIsItsOwnDecayedMean) {
  EmaPredictor predictor({.prediction_steps = 12}, kCapacity, kKernels);
  std::vector<float> mass = {0.01f};
  predictor.AddSlots(0, 0, 1);
  predictor.Observe(0, mass.data(), 1, 1);
  float forecast = PredictAll(predictor, 0, 1)[0];
  EXPECT_GT(forecast, 0);
  std::vector<float> by_step(12, forecast);
  EXPECT_FLOAT_EQ(DecayedMean(by_step, 0.9f), forecast);
}

}  // namespace
}  // namespace lkv
