#include "policy/recall_guard.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "policy/testing_state.h"

namespace lkv {
namespace {

TEST(RecallGuardTest, WidensStepByStepWhileTooMuchIsLeftOut) {
  RecallGuard guard({});
  EXPECT_EQ(guard.Widened(0.25), 0.25);
  uint32_t n_changes = 0;
  for (uint32_t i = 1; i <= 200; ++i) {
    const bool changed = guard.Add(0.3, i);
    EXPECT_EQ(changed, i % RecallGuard::kRestUp == 0 &&
                           i / RecallGuard::kRestUp <= RecallGuard::kMostLevel)
        << i;
    n_changes += changed;
    EXPECT_EQ(guard.level(), n_changes);
    EXPECT_EQ(guard.drops_network(), n_changes >= 4);
  }
  EXPECT_EQ(guard.n_changes(), 5u);
  EXPECT_EQ(guard.Widened(0.25), 1);
  EXPECT_NEAR(guard.gap(), 0.3, 1e-9);
}

TEST(RecallGuardTest, EachLevelReadsHalfAsMuchAgain) {
  RecallGuard guard({});
  std::vector<double> shares;
  for (uint32_t i = 0; i < 5 * RecallGuard::kRestUp; ++i) {
    if (guard.Add(1, i)) shares.push_back(guard.Widened(0.2));
  }
  ASSERT_EQ(shares.size(), 5u);
  EXPECT_NEAR(shares[0], 0.3, 1e-9);
  EXPECT_NEAR(shares[1], 0.45, 1e-9);
  EXPECT_NEAR(shares[2], 0.675, 1e-9);
  EXPECT_NEAR(shares[3], 0.675, 1e-9);
  EXPECT_EQ(shares[4], 1);
}

TEST(RecallGuardTest, GoesDownAfterALongCalmOnly) {
  RecallGuard guard({});
  for (uint32_t i = 0; i < RecallGuard::kRestUp; ++i) guard.Add(0.3, i);
  EXPECT_EQ(guard.level(), 1u);
  uint32_t n = 0;
  // Between half the limit and the limit nothing moves.
  for (; n < 1000; ++n) ASSERT_FALSE(guard.Add(0.1, n)) << n;
  for (n = 0; n < 1000 && !guard.Add(0.01, 2000); ++n) {
  }
  EXPECT_EQ(guard.level(), 0u);
  EXPECT_GE(n, RecallGuard::kRestDown);
  EXPECT_LT(n, RecallGuard::kRestDown + 20);
  ASSERT_EQ(guard.changes().size(), 2u);
  EXPECT_EQ(guard.changes()[0].level, 1u);
  EXPECT_EQ(guard.changes()[0].n_tokens, RecallGuard::kRestUp - 1);
  EXPECT_NEAR(guard.changes()[0].gap, 0.3, 1e-9);
  EXPECT_EQ(guard.changes()[1].level, 0u);
  EXPECT_EQ(guard.changes()[1].n_tokens, 2000u);
}

TEST(RecallGuardTest, KeepsTheLastChanges) {
  RecallGuard guard({});
  uint32_t n = 0;
  while (guard.n_changes() < RecallGuard::kChangesKept + 3) {
    guard.Add(n / 1000 % 2 == 0 ? 0.5 : 0.0, n);
    ++n;
  }
  const auto changes = guard.changes();
  ASSERT_EQ(changes.size(), RecallGuard::kChangesKept);
  for (size_t i = 1; i < changes.size(); ++i) {
    EXPECT_GT(changes[i].n_tokens, changes[i - 1].n_tokens);
  }
  EXPECT_EQ(changes.back().n_tokens, n - 1);
}

TEST(RecallGuardTest, OneBadSampleMovesNothing) {
  RecallGuard guard({});
  for (uint32_t i = 0; i < 100; ++i) {
    EXPECT_FALSE(guard.Add(i == 50 ? 1.0 : 0.04, i));
  }
}

TEST(RecallGuardTest, WhatIsNoNumberIsNoSample) {
  RecallGuard guard({});
  guard.Add(0.1, 1);
  EXPECT_FALSE(guard.Add(std::numeric_limits<double>::quiet_NaN(), 2));
  EXPECT_FALSE(guard.Add(std::numeric_limits<double>::infinity(), 3));
  EXPECT_EQ(guard.gap(), 0.1);
  EXPECT_EQ(guard.n_samples(), 1u);
}

TEST(RecallGuardTest, SamplesTheLayersInTurns) {
  const RecallGuard guard({.sample_steps = 10});
  EXPECT_EQ(guard.LayerToSample(100, 3), 1u);
  EXPECT_EQ(guard.LayerToSample(110, 3), 2u);
  EXPECT_EQ(guard.LayerToSample(120, 3), 0u);
  EXPECT_EQ(guard.LayerToSample(121, 3), 3u);
}

TEST(RecallGuardTest, GoesOnElsewhere) {
  for (uint32_t left = 1; left < 400; left += 13) {
    RecallGuard stays({}), elsewhere({});
    const auto gap = [](uint32_t i) { return i < 100 ? 0.3 : 0.01; };
    for (uint32_t i = 0; i < left; ++i) stays.Add(gap(i), i);
    MoveState(stays, elsewhere);
    for (uint32_t i = left; i < left + 300; ++i) {
      ASSERT_EQ(elsewhere.Add(gap(i), i), stays.Add(gap(i), i));
      ASSERT_EQ(elsewhere.level(), stays.level());
      ASSERT_EQ(elsewhere.gap(), stays.gap());
    }
    EXPECT_EQ(elsewhere.n_changes(), stays.n_changes());
    EXPECT_EQ(elsewhere.n_samples(), stays.n_samples());
  }
}

}  // namespace
}  // namespace lkv
