#include "policy/forecast_check.h"

#include <gtest/gtest.h>

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

TEST_F(ForecastCheckTest, TheNetworkHasToBeBetterThanTheAverage) {
  Add(ForecastCheck::kMinReturns, 0.5f, 0.5f);
  EXPECT_FALSE(verdict().uses_network);
  Add(1, 0.75f, 0.5f);
  EXPECT_TRUE(verdict().uses_network);
}

TEST_F(ForecastCheckTest, OldReturnsAreOutweighedByNewOnes) {
  Add(ForecastCheck::kMaxReturns, 0.25f, 0.5f);
  EXPECT_FALSE(verdict().uses_network);
  Add(ForecastCheck::kMaxReturns / 2, 0.75f, 0.5f);
  EXPECT_FALSE(verdict().uses_network);  // half of what was weighs as much
  Add(1, 0.75f, 0.5f);
  EXPECT_TRUE(verdict().uses_network);
  EXPECT_EQ(verdict().n_returns, ForecastCheck::kMaxReturns * 3 / 2 + 1);
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
