#include "policy/lookahead_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/kernel_table.h"
#include "policy/page_worth.h"
#include "policy/scorer.h"

namespace lkv {
namespace {

constexpr PolicyCapacity kCapacity = {.n_lanes = 1, .pages_per_lane = 16};

// A lane of whole pages under a look-ahead policy.
class LookaheadPolicyTest : public ::testing::Test {
 protected:
  void Start(ScoreName score, const PredictorView& predictor = {}) {
    CacheOptions options;
    options.score = score;
    policy_ = std::make_unique<LookaheadPolicy>(
        options, kCapacity, *SelectKernels(nullptr), predictor);
  }
  void AddPages(uint32_t n, float norm, float distance) {
    std::vector<float> norms(kPageTokens, norm);
    std::vector<float> distances(kPageTokens, distance);
    for (; n > 0; --n) {
      policy_->AddPage(0, n_slots_);
      policy_->AddSlots(0, kPageTokens, norms.data(), distances.data());
      n_slots_ += kPageTokens;
    }
  }
  // The slots of page p get page_attention[p], the last one three times that,
  // from many queries.
  void Settle(const std::vector<float>& page_attention) {
    std::vector<float> mass(n_slots_);
    for (uint32_t i = 0; i < n_slots_; ++i) {
      mass[i] = page_attention[i / 16] * (i % 16 == 15 ? 3 : 1);
    }
    for (int t = 0; t < 500; ++t) {
      policy_->Observe({.lane = 0,
                        .query_pos = n_slots_ - 1,
                        .n_slots = n_slots_,
                        .mass_max = mass.data()});
    }
  }
  void Score() {
    attention_.resize(n_slots_ / 16);
    score_.resize(n_slots_ / 16);
    std::vector<float> slot_attention(n_slots_);
    std::vector<float> slot_score(n_slots_);
    ScorePages(*policy_, 0, n_slots_, {slot_attention, slot_score},
               {attention_, score_});
  }

  std::unique_ptr<LookaheadPolicy> policy_;
  uint32_t n_slots_ = 0;
  std::vector<float> attention_;
  std::vector<float> score_;
};

TEST_F(LookaheadPolicyTest, ComputesWithTheKernelsItIsGiven) {
  static uint32_t n_calls;
  n_calls = 0;
  KernelTable kernels = *SelectKernels(nullptr);
  kernels.ema_f16 = [](uint16_t*, const float*, size_t, float) { ++n_calls; };
  const auto policy = MakeEvictionPolicy({}, kCapacity, kernels, {});
  const std::vector<float> values(kPageTokens, 1);
  policy->AddPage(0, 0);
  policy->AddSlots(0, kPageTokens, values.data(), values.data());
  policy->Observe({.lane = 0,
                   .query_pos = kPageTokens - 1,
                   .n_slots = kPageTokens,
                   .mass_max = values.data()});
  EXPECT_EQ(n_calls, 1u);
}

TEST_F(LookaheadPolicyTest, OutputErrorPagesAreWorthTheirBestSlot) {
  Start(ScoreName::kOutputError);
  AddPages(1, 100, 2);
  AddPages(1, 1, 3);
  Settle({0.01f, 0.02f});
  Score();
  EXPECT_NEAR(attention_[0], 0.03, 0.001);
  EXPECT_NEAR(score_[0] / OutputErrorScore(0.03f, 2), 1, 0.03);
  EXPECT_NEAR(score_[1] / OutputErrorScore(0.06f, 3), 1, 0.03);
  EXPECT_TRUE(policy_->two_stage());
}

// Forecasts that a token may get the most that it got from afar, in lane 3.
HistoryNetwork PeakNetwork() {
  HistoryNetwork network(4);
  network.direct[1] = 1;
  network.bias = {-9, -9, -9, 0};
  return network;
}

TEST_F(LookaheadPolicyTest, TheNetworkAddsWhatATokenMayGet) {
  const HistoryNetwork network = PeakNetwork();
  Start(ScoreName::kOutputError, {.network = &network, .first_lane = 3});
  EXPECT_FALSE(policy_->two_stage());
  AddPages(6, 1, 2);
  std::vector<float> mass(n_slots_);
  mass[20] = 0.25f;  // once, long ago
  policy_->Observe({.lane = 0,
                    .query_pos = 95,
                    .n_slots = n_slots_,
                    .mass_max = mass.data()});
  mass[20] = 0;
  for (int t = 0; t < 2000; ++t) {
    policy_->Observe({.lane = 0,
                      .query_pos = 96,
                      .n_slots = n_slots_,
                      .mass_max = mass.data()});
  }
  Score();
  EXPECT_NEAR(score_[1], 0.25f * LookaheadPolicy::kReuseWeight, 1e-5);
  EXPECT_NEAR(score_[0], 0, 1e-5);
  EXPECT_NEAR(attention_[1], 0, 1e-5) << "not what the next steps get";
}

// Tokens 20 to 23 come back, one at a time, at the queries that the check looks
// at; in between nobody remembers them. Decides once enough did; returns how
// often scores changed their meaning.
int LetTokensReturn(EvictionPolicy& policy, uint32_t n_slots, uint32_t lane) {
  int n_changes = 0;
  constexpr uint32_t kPeriod =
      SlotHistory::kPeakQueries * ForecastCheck::kLanePeriod;
  std::vector<float> mass(n_slots);
  uint32_t query_pos = 2 * kPeriod + SlotHistory::kPeakQueries - 1;
  for (uint32_t i = 0; i <= ForecastCheck::kMinReturns; ++i) {
    mass[20 + i % 4] = 0.25f;
    policy.Observe({.lane = lane,
                    .query_pos = query_pos,
                    .tokens_since = 5000,
                    .n_slots = n_slots,
                    .mass_max = mass.data()});
    mass[20 + i % 4] = 0;
    policy.Observe({.lane = lane,
                    .query_pos = query_pos + 1,
                    .tokens_since = 5000,
                    .n_slots = n_slots,
                    .mass_max = mass.data()});
    n_changes += policy.EndStep() ? 1 : 0;
    query_pos += kPeriod;
  }
  return n_changes;
}

TEST_F(LookaheadPolicyTest, ANetworkThatSeesReturnsComingStays) {
  const HistoryNetwork network = PeakNetwork();
  Start(ScoreName::kOutputError, {.network = &network, .first_lane = 3});
  AddPages(12, 1, 2);
  EXPECT_EQ(LetTokensReturn(*policy_, n_slots_, 0), 0);
  EXPECT_EQ(policy_->forecast()->n_returns, ForecastCheck::kMinReturns + 1);
  EXPECT_TRUE(policy_->forecast()->uses_network);
  EXPECT_GT(policy_->forecast()->network_rank, 0.9f);
  EXPECT_NEAR(policy_->forecast()->average_rank, 0.5f, 0.01f);
  EXPECT_FALSE(policy_->two_stage());
}

TEST_F(LookaheadPolicyTest, ANetworkThatForecastsTheReverseIsLeftOut) {
  HistoryNetwork network = PeakNetwork();
  network.direct[1] = -1;
  Start(ScoreName::kOutputError, {.network = &network, .first_lane = 3});
  AddPages(12, 1, 2);
  EXPECT_EQ(LetTokensReturn(*policy_, n_slots_, 0), 1);
  EXPECT_FALSE(policy_->forecast()->uses_network);
  EXPECT_LT(policy_->forecast()->network_rank, 0.1f);
  EXPECT_TRUE(policy_->two_stage());
  Score();
  EXPECT_NEAR(score_[5], 0, 1e-5);  // and has no part in the scores
}

TEST_F(LookaheadPolicyTest, TheNetworkLeavesTheOlderScoreAlone) {
  const HistoryNetwork network = PeakNetwork();
  Start(ScoreName::kValueNorm, {.network = &network, .first_lane = 3});
  AddPages(1, 5, 1000);
  Settle({0.01f});
  Score();
  EXPECT_NEAR(score_[0], 5 * 0.03, 0.005);
}

TEST_F(LookaheadPolicyTest, ValueNormPagesAreWorthTheirBestSlot) {
  Start(ScoreName::kValueNorm);
  AddPages(1, 5, 1000);
  Settle({0.01f});
  Score();
  EXPECT_NEAR(score_[0], 5 * 0.03, 0.005);
  EXPECT_FALSE(policy_->two_stage());
}

TEST_F(LookaheadPolicyTest, FiguresOutsideTheHalfStayFinite) {
  Start(ScoreName::kOutputError);
  AddPages(1, 1, std::numeric_limits<float>::max());
  Settle({1.0f});
  Score();
  EXPECT_TRUE(std::isfinite(score_[0]));
  EXPECT_GT(score_[0], 0);
}

TEST_F(LookaheadPolicyTest, AnOpenPageCountsItsSlotsOnly) {
  Start(ScoreName::kOutputError);
  AddPages(2, 1, 1);
  Settle({0.01f, 0.01f});
  policy_->RemovePage(0, 0);
  n_slots_ = 16;
  policy_->AddPage(0, 32);
  std::vector<float> one = {1};
  policy_->AddSlots(0, 1, one.data(), one.data());
  std::vector<float> mass(17, 0.01f);
  for (int t = 0; t < 500; ++t) {
    policy_->Observe(
        {.lane = 0, .query_pos = 32, .n_slots = 17, .mass_max = mass.data()});
  }
  std::vector<float> slot_attention(17);
  std::vector<float> slot_score(17);
  std::vector<float> attention(2);
  std::vector<float> score(2);
  ScorePages(*policy_, 0, 33, {slot_attention, slot_score}, {attention, score});
  EXPECT_NEAR(attention[1], 0.01, 0.001);  // not what the old page left behind
}

TEST_F(LookaheadPolicyTest, StateIsBelowFourPercentOfAPage) {
  Start(ScoreName::kOutputError);
  // 8 B of page table and 8 B of the pattern detector beside it.
  EXPECT_LE(policy_->bytes_per_page() + 16, 4096 * 4 / 100);
}

}  // namespace
}  // namespace lkv
