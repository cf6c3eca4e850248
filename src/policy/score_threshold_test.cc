#include "policy/score_threshold.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "policy/testing_state.h"

namespace lkv {
namespace {

std::vector<float> UpTo(int n) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(static_cast<float>(i * 7 % n));
  return values;
}

class ScoreThresholdTest : public ::testing::Test {
 protected:
  void Freeze(ScoreThreshold& threshold, const std::vector<float>& score) {
    std::vector<float> scratch(score.size());
    threshold.Freeze(0, score, std::vector<uint8_t>(score.size(), 0), scratch);
  }
  static long CountBelow(const std::vector<float>& score, float value) {
    return std::count_if(score.begin(), score.end(),
                         [&](float s) { return s < value; });
  }
};

TEST_F(ScoreThresholdTest, ThePercentileOfTheScoresLiesBelow) {
  const std::vector<float> score = UpTo(20);
  for (double percentile : {0.0, 25.0, 50.0, 99.0, 100.0}) {
    ScoreThreshold threshold(percentile, 1);
    Freeze(threshold, score);
    EXPECT_EQ(CountBelow(score, threshold.value(0)),
              static_cast<long>(percentile / 100 * 20))
        << percentile;
  }
}

TEST_F(ScoreThresholdTest, GoesOnElsewhere) {
  std::vector<float> score(10);
  std::iota(score.begin(), score.end(), 1.0f);
  ScoreThreshold threshold(50, 1), elsewhere(50, 1);
  Freeze(threshold, score);
  MoveState(threshold, elsewhere);
  EXPECT_TRUE(elsewhere.frozen(0));
  EXPECT_EQ(elsewhere.value(0), threshold.value(0));
}

TEST_F(ScoreThresholdTest, StaysWhereItWasFrozen) {
  ScoreThreshold threshold(50, 1);
  Freeze(threshold, UpTo(20));
  float value = threshold.value(0);
  Freeze(threshold, std::vector<float>(20, 1000.0f));
  EXPECT_EQ(threshold.value(0), value);
}

TEST_F(ScoreThresholdTest, ThawedItFreezesAnew) {
  ScoreThreshold threshold(50, 1);
  Freeze(threshold, std::vector<float>(20, 1000.0f));
  threshold.Thaw();
  EXPECT_FALSE(threshold.frozen(0));
  EXPECT_EQ(threshold.value(0), -std::numeric_limits<float>::infinity());
  Freeze(threshold, UpTo(20));
  EXPECT_EQ(CountBelow(UpTo(20), threshold.value(0)), 10);
}

TEST_F(ScoreThresholdTest, WaitsForEnoughPagesAndEvictsNothingUntilThen) {
  ScoreThreshold threshold(50, 1);
  Freeze(threshold, UpTo(ScoreThreshold::kMinPages - 1));
  EXPECT_FALSE(threshold.frozen(0));
  EXPECT_EQ(threshold.value(0), -std::numeric_limits<float>::infinity());
  Freeze(threshold, UpTo(ScoreThreshold::kMinPages));
  EXPECT_TRUE(threshold.frozen(0));
}

TEST_F(ScoreThresholdTest, CountsContestablePagesOfThatLaneOnly) {
  std::vector<float> score(20, 0.0f);
  std::vector<uint8_t> is_protected(20, 1);
  for (int i = 0; i < 8; ++i) {
    score[i] = 10;
    is_protected[i] = 0;
  }
  std::vector<float> scratch(20);
  ScoreThreshold threshold(50, 2);
  threshold.Freeze(1, score, is_protected, scratch);
  EXPECT_EQ(threshold.value(1), 10);
  EXPECT_FALSE(threshold.frozen(0));
}

}  // namespace
}  // namespace lkv
