#include "policy/forecast_check.h"

#include <gtest/gtest.h>

#include "policy/testing_state.h"

namespace lkv {
namespace {

class ForecastCheckTest : public ::testing::Test {
 protected:
  void Add(uint32_t n, float network_rank, float average_rank) {
    for (uint32_t i = 0; i < n; ++i) {
      check_.Add(i % 3, network_rank, average_rank);
    }
    check_.Decide();
  }
  const ForecastCheck::Verdict& verdict() const { return check_.verdict(); }

  ForecastCheck check_{3};
};

TEST_F(ForecastCheckTest, TheNetworkIsTrustedUntilEnoughReturned) {
  EXPECT_TRUE(verdict().uses_network);
  Add(ForecastCheck::kMinReturns - 1, 0.2f, 0.6f);
  EXPECT_TRUE(verdict().uses_network);
  Add(1, 0.2f, 0.6f);
  EXPECT_FALSE(verdict().uses_network);
  EXPECT_EQ(verdict().n_returns, ForecastCheck::kMinReturns);
  EXPECT_NEAR(verdict().network_rank, 0.2, 1e-4);
  EXPECT_NEAR(verdict().average_rank, 0.6, 1e-4);
}

TEST_F(ForecastCheckTest, TheNetworkMayRankALittleBelowTheAverage) {
  Add(ForecastCheck::kMinReturns, 0.5f, 0.59f);
  EXPECT_TRUE(verdict().uses_network);
  Add(ForecastCheck::kMinReturns, 0.5f, 0.63f);
  EXPECT_FALSE(verdict().uses_network);  // 0.61 on average
  Add(ForecastCheck::kMinReturns, 0.5f, 0.5f);
  EXPECT_TRUE(verdict().uses_network);
}

TEST_F(ForecastCheckTest, OldReturnsAreOutweighedByNewOnes) {
  Add(ForecastCheck::kMaxReturns, 0.2f, 0.7f);
  EXPECT_FALSE(verdict().uses_network);
  // Half of what was weighs as much: then the mean ranks are alike.
  Add(ForecastCheck::kMaxReturns / 2, 0.7f, 0.2f);
  EXPECT_TRUE(verdict().uses_network);
  EXPECT_NEAR(verdict().network_rank, 0.45, 1e-3);
  EXPECT_NEAR(verdict().average_rank, 0.45, 1e-3);
  EXPECT_EQ(verdict().n_returns, ForecastCheck::kMaxReturns * 3 / 2);
}

TEST_F(ForecastCheckTest, GoesOnElsewhere) {
  Add(ForecastCheck::kMaxReturns, 0.2f, 0.7f);
  ForecastCheck elsewhere(3);
  MoveState(check_, elsewhere);
  EXPECT_FALSE(elsewhere.verdict().uses_network);
  for (ForecastCheck* check : {&check_, &elsewhere}) {
    check->Add(0, 0.7f, 0.2f);
    check->Decide();
  }
  EXPECT_EQ(elsewhere.verdict().n_returns, verdict().n_returns);
  EXPECT_EQ(elsewhere.verdict().network_rank, verdict().network_rank);
  EXPECT_EQ(elsewhere.verdict().average_rank, verdict().average_rank);
}

TEST_F(ForecastCheckTest, EveryLaneIsSampledOnceAPeriod) {
  for (uint32_t lane = 0; lane < 40; ++lane) {
    uint32_t n = 0;
    for (uint32_t query = 0; query < ForecastCheck::kLanePeriod; ++query) {
      n += ForecastCheck::Samples(lane, query) ? 1 : 0;
    }
    EXPECT_EQ(n, 1u);
  }
}

}  // namespace
}  // namespace lkv
