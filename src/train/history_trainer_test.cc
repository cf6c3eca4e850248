#include "train/history_trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace lkv {
namespace {

constexpr uint32_t kLanes = 3;

// Targets that a network of two layers can express: a bend in one input, and a
// different level for every lane.
HistoryExamples Examples(uint64_t seed, size_t n_of_lane) {
  std::mt19937_64 random(seed);
  const auto draw = [&](float low, float high) {
    return low + (high - low) * static_cast<float>(random() >> 40) * 0x1p-24f;
  };
  HistoryExamples examples(kLanes);
  for (uint32_t l = 0; l < kLanes; ++l) {
    for (size_t i = 0; i < n_of_lane; ++i) {
      const float average = draw(-20, -2);
      const float peak = draw(-31, 0);
      examples.lanes[l].inputs.push_back(average);
      examples.lanes[l].inputs.push_back(peak);
      examples.lanes[l].target.push_back(0.4f * average +
                                         0.5f * std::max(peak, -10.0f) -
                                         static_cast<float>(l));
    }
  }
  return examples;
}

TEST(HistoryTrainerTest, LearnsABendAndALevelForEveryLane) {
  const auto trained =
      TrainHistoryNetwork(Examples(1, 20000), Examples(2, 500), {.seed = 1},
                          *SelectKernels(nullptr), {}, {});
  ASSERT_TRUE(trained.ok()) << trained.status().message();
  EXPECT_GT(trained->mean_error, 2) << "what knows nothing about the token";
  EXPECT_LT(trained->error, 0.02);
  const float inputs[] = {-8, -30};
  float forecast = 0;
  trained->network.Forecast(*SelectKernels(nullptr), 2, inputs, {&forecast, 1});
  EXPECT_NEAR(forecast, 0.4f * -8 + 0.5f * -10 - 2, 0.3);
}

TEST(HistoryTrainerTest, EndsBehindTheEpochInWhichTimeRunsOut) {
  const HistoryExamples examples = Examples(1, 2000);
  const HistoryExamples held_out = Examples(2, 100);
  uint32_t n_asked = 0;
  const auto train = [&](uint32_t last) {
    n_asked = 0;
    return TrainHistoryNetwork(
        examples, held_out,
        {.max_epochs = 3,
         .out_of_time = [&, last] { return ++n_asked == last; }},
        *SelectKernels(nullptr), {}, {});
  };
  const auto cut = train(2);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->n_epochs, 2u);
  EXPECT_TRUE(cut->timed_out);
  EXPECT_LT(cut->error, cut->mean_error);
  EXPECT_EQ(n_asked, 2u);
  const auto whole = train(3);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->n_epochs, 3u);
  EXPECT_FALSE(whole->timed_out) << "it was at its end";
}

TEST(HistoryTrainerTest, GivesTheSameNetworkForTheSameSeed) {
  const HistoryExamples examples = Examples(1, 2000);
  const HistoryExamples held_out = Examples(2, 100);
  const auto train = [&](uint64_t seed) {
    const auto trained =
        TrainHistoryNetwork(examples, held_out, {.seed = seed, .max_epochs = 2},
                            *SelectKernels(nullptr), {}, {});
    EXPECT_TRUE(trained.ok());
    return trained->network.hidden_bias;
  };
  EXPECT_EQ(train(5), train(5));
  EXPECT_NE(train(5), train(6));
}

TEST(HistoryTrainerTest, RefusesLanesWithoutExamplesAndNumbersThatAreNone) {
  HistoryExamples examples = Examples(1, 100);
  examples.lanes[1] = {};
  const auto empty = TrainHistoryNetwork(examples, Examples(2, 100), {},
                                         *SelectKernels(nullptr), {}, {});
  EXPECT_EQ(empty.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(empty.status().message().find("lane 1"), std::string::npos);

  examples = Examples(1, 100);
  examples.lanes[2].inputs[7] = std::numeric_limits<float>::quiet_NaN();
  const auto nan = TrainHistoryNetwork(examples, Examples(2, 100), {},
                                       *SelectKernels(nullptr), {}, {});
  EXPECT_EQ(nan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(nan.status().message().find("lane 2"), std::string::npos);
}

TEST(HistoryTrainerTest, StopsOnRequest) {
  const auto trained =
      TrainHistoryNetwork(Examples(1, 100), Examples(2, 100), {},
                          *SelectKernels(nullptr), {}, [] { return true; });
  EXPECT_EQ(trained.status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace lkv
