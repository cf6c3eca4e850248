#include "policy/expected_attention_policy.h"

#include <gtest/gtest.h>

#include <vector>

namespace lkv {
namespace {

constexpr PolicyCapacity kCapacity = {.n_lanes = 2, .pages_per_lane = 4};
constexpr uint32_t kLane = 1;

// Token i has a value of norm i + 1.
void AddTokens(EvictionPolicy& policy, uint32_t first_pos, uint32_t n) {
  std::vector<float> norms(n), distances(n);
  for (uint32_t i = 0; i < n; ++i) {
    if ((first_pos + i) % kPageTokens == 0)
      policy.AddPage(kLane, first_pos + i);
    norms[i] = static_cast<float>(first_pos + i + 1);
    policy.AddSlots(kLane, 1, &norms[i], &distances[i]);
  }
}

std::vector<float> ScoresOf(const EvictionPolicy& policy, uint32_t n_slots) {
  std::vector<float> attention(n_slots), score(n_slots);
  policy.ScoreSlots(kLane, n_slots, {attention, score});
  EXPECT_EQ(attention, score);
  return score;
}

TEST(ExpectedAttentionPolicyTest, ScoresAreWhatIsExpectedTimesTheValuesNorm) {
  ExpectedAttentionPolicy policy(kCapacity);
  EXPECT_TRUE(policy.wants_expectation());
  AddTokens(policy, 0, 3);
  policy.ObserveExpectation(kLane, std::vector{0.5f, 0.25f, 0.125f});
  EXPECT_EQ(ScoresOf(policy, 3), (std::vector{0.5f, 0.5f, 0.375f}));
}

TEST(ExpectedAttentionPolicyTest, WhatCameBehindTheExpectationRanksAboveAll) {
  ExpectedAttentionPolicy policy(kCapacity);
  AddTokens(policy, 0, 2);
  policy.ObserveExpectation(kLane, std::vector{1.0f, 1.0f});
  AddTokens(policy, 2, 1);
  const std::vector<float> scores = ScoresOf(policy, 3);
  EXPECT_GT(scores[2], scores[0]);
  EXPECT_GT(scores[2], scores[1]);
  policy.ObserveExpectation(kLane, std::vector{0.5f, 0.0f, 0.5f});
  EXPECT_EQ(ScoresOf(policy, 3), (std::vector{0.5f, 0.0f, 1.5f}));
}

// Norms, too: the next expectation must meet those of the slots that are left.
TEST(ExpectedAttentionPolicyTest, NormsGoWhereTheirSlotsGo) {
  ExpectedAttentionPolicy policy(kCapacity);
  AddTokens(policy, 0, 3 * kPageTokens);
  // Every other token of the first two pages stays, in the first.
  const std::vector<uint32_t> pages = {0, 1};
  std::vector<uint32_t> slots;
  for (uint32_t i = 0; i < kPageTokens; ++i) slots.push_back(2 * i);
  policy.MoveSlots(kLane, {.pages = pages, .slots = slots});
  policy.RemovePage(kLane, 1);
  policy.ObserveExpectation(kLane, std::vector<float>(2 * kPageTokens, 1.0f));
  const std::vector<float> scores = ScoresOf(policy, 2 * kPageTokens);
  for (uint32_t i = 0; i < kPageTokens; ++i) {
    EXPECT_EQ(scores[i], 2 * i + 1);
    EXPECT_EQ(scores[kPageTokens + i], 2 * kPageTokens + i + 1);
  }
}

}  // namespace
}  // namespace lkv
