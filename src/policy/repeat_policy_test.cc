#include "policy/repeat_policy.h"

#include <gtest/gtest.h>

#include <vector>

namespace lkv {
namespace {

TEST(RepeatPolicyTest, RanksTokensByTheMostAttentionOfTheSecondReading) {
  const auto scores = std::make_shared<RereadScores>(2, 40);
  std::vector<float> mass(40, 0.01f);
  mass[5] = 0.5f;
  scores->Observe(1, mass.data());
  mass[5] = 0.1f;
  mass[33] = 0.2f;
  scores->Observe(1, mass.data());

  RepeatPolicy policy(scores, {.n_lanes = 2, .pages_per_lane = 4});
  const std::vector<float> values(48, 1);
  for (uint32_t lane = 0; lane < 2; ++lane) {
    for (uint32_t page = 0; page < 3; ++page) policy.AddPage(lane, 16 * page);
    policy.AddSlots(lane, 45, values.data(), values.data());
  }
  std::vector<float> attention(45);
  std::vector<float> score(45);
  policy.ScoreSlots(1, 45, {attention, score});
  EXPECT_EQ(score[5], 0.5f);
  EXPECT_EQ(score[33], 0.2f);
  EXPECT_EQ(score[6], 0.01f);
  EXPECT_GT(score[40], 1) << "what came later ranks above all";
  EXPECT_EQ(attention, score);

  // Positions travel with their slots.
  std::vector<uint32_t> slots;
  for (uint32_t i = 0; i < 16; i += 2) slots.push_back(i + 1);
  for (uint32_t i = 16; i < 32; i += 2) slots.push_back(i + 1);
  policy.MoveSlots(1, {.pages = std::vector<uint32_t>{0, 1}, .slots = slots});
  policy.RemovePage(1, 1);
  attention.resize(29);
  score.resize(29);
  policy.ScoreSlots(1, 45, {attention, score});
  EXPECT_EQ(score[2], 0.5f) << "position 5";
  EXPECT_EQ(score[16 + 1], 0.2f) << "position 33";
}

}  // namespace
}  // namespace lkv
