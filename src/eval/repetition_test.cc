#include "eval/repetition.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace lkv {
namespace {

std::vector<int32_t> Counting(size_t n) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(RepetitionTest, WhatNeverComesAgainIsAllDistinct) {
  const Repetition repetition = RepetitionOf(Counting(100));
  EXPECT_EQ(repetition.repeated_4grams, 0);
  EXPECT_EQ(repetition.distinct_4grams, 1);
}

TEST(RepetitionTest, ALoopRepeatsAllButItsFirstRound) {
  std::vector<int32_t> tokens;
  for (int round = 0; round < 20; ++round) {
    for (int32_t token = 0; token < 5; ++token) tokens.push_back(token);
  }
  // 97 runs of four, of which five are different.
  const Repetition repetition = RepetitionOf(tokens);
  EXPECT_DOUBLE_EQ(repetition.repeated_4grams, 92.0 / 97);
  EXPECT_DOUBLE_EQ(repetition.distinct_4grams, 5.0 / 97);
}

TEST(RepetitionTest, WhatComesAgainFromAfarIsNoLoop) {
  std::vector<int32_t> tokens = Counting(300);
  tokens.insert(tokens.end(), {0, 1, 2, 3});
  const Repetition repetition = RepetitionOf(tokens);
  EXPECT_EQ(repetition.repeated_4grams, 0);
  EXPECT_DOUBLE_EQ(repetition.distinct_4grams, 300.0 / 301);
}

TEST(RepetitionTest, AShortTextHasNone) {
  EXPECT_EQ(RepetitionOf(Counting(3)).repeated_4grams, 0);
  EXPECT_EQ(RepetitionOf(Counting(3)).distinct_4grams, 1);
  EXPECT_EQ(RepetitionOf({}).distinct_4grams, 1);
}

}  // namespace
}  // namespace lkv
