#include "policy/lane_spread.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "policy/testing_state.h"

namespace lkv {
namespace {

std::vector<uint32_t> ApportionOf(const std::vector<float>& weights,
                                  uint32_t total, uint32_t floor,
                                  uint32_t cap) {
  std::vector<double> exact(weights.size());
  std::vector<uint32_t> order(weights.size());
  std::vector<uint32_t> out(weights.size());
  Apportion(weights, total, floor, cap, exact, order, out);
  return out;
}

TEST(ApportionTest, GivesTheFloorToAllAndTheRestByWeight) {
  EXPECT_EQ(ApportionOf({1, 2, 3}, 36, 2, 100),
            (std::vector<uint32_t>{7, 12, 17}));
}

TEST(ApportionTest, LargestRemaindersGetTheOddOnes) {
  EXPECT_EQ(ApportionOf({1, 1, 1}, 11, 0, 100),
            (std::vector<uint32_t>{4, 4, 3}));
  EXPECT_EQ(ApportionOf({0, 0, 0}, 10, 1, 100),
            (std::vector<uint32_t>{4, 3, 3}));
}

TEST(ApportionTest, WhatACappedPartyCannotTakeGoesToTheOthers) {
  EXPECT_EQ(ApportionOf({100, 1, 1}, 30, 0, 12),
            (std::vector<uint32_t>{12, 9, 9}));
  EXPECT_EQ(ApportionOf({5, 0, 1}, 90, 0, 12),
            (std::vector<uint32_t>{12, 12, 12}));
}

// Every way to split total among three parties within floor and cap; the chosen
// one must lie nearest to the exact shares.
TEST(ApportionTest, IsTheNearestIntegerSplitAmongAll) {
  std::mt19937 random(13);
  for (int round = 0; round < 400; ++round) {
    std::vector<float> weights(3);
    for (float& w : weights) w = static_cast<float>(random() % 10);
    uint32_t floor = random() % 3;
    uint32_t cap = 12;
    uint32_t total = 3 * floor + random() % 10;
    float sum = weights[0] + weights[1] + weights[2];
    double exact[3];
    bool capped = false;
    for (int i = 0; i < 3; ++i) {
      double share = sum > 0 ? weights[i] / sum : 1.0 / 3;
      exact[i] = floor + (total - 3.0 * floor) * share;
      capped |= exact[i] > cap;
    }
    if (capped) continue;
    auto distance = [&](uint32_t a, uint32_t b, uint32_t c) {
      return std::pow(a - exact[0], 2) + std::pow(b - exact[1], 2) +
             std::pow(c - exact[2], 2);
    };
    double best = 1e9;
    for (uint32_t a = floor; a <= cap; ++a) {
      for (uint32_t b = floor; b <= cap; ++b) {
        if (a + b > total || total - a - b < floor) continue;
        best = std::min(best, distance(a, b, total - a - b));
      }
    }
    std::vector<uint32_t> out = ApportionOf(weights, total, floor, cap);
    ASSERT_EQ(out[0] + out[1] + out[2], total);
    ASSERT_NEAR(distance(out[0], out[1], out[2]), best, 1e-6) << round;
  }
}

TEST(ApportionTest, SumsToTheTotalWithinFloorAndCap) {
  std::mt19937 random(17);
  for (int round = 0; round < 500; ++round) {
    std::vector<float> weights(1 + random() % 90);
    for (float& w : weights) {
      w = std::exp(static_cast<float>(random() % 100) / 10.0f);
    }
    auto n = static_cast<uint32_t>(weights.size());
    uint32_t floor = random() % 5;
    uint32_t cap = floor + random() % 50;
    uint32_t total = n * floor + random() % (n * 40);
    std::vector<uint32_t> out = ApportionOf(weights, total, floor, cap);
    ASSERT_EQ(std::accumulate(out.begin(), out.end(), 0u),
              std::min(total, n * cap));
    for (uint32_t pages : out) {
      ASSERT_GE(pages, floor);
      ASSERT_LE(pages, cap);
    }
    // A heavier party never gets less.
    for (uint32_t i = 1; i < n; ++i) {
      if (weights[i] > weights[i - 1]) {
        ASSERT_GE(out[i], out[i - 1]);
      }
    }
  }
}

std::vector<uint32_t> Targets(const LaneSpread& spread, uint32_t n_lanes) {
  std::vector<uint32_t> targets;
  for (uint32_t lane = 0; lane < n_lanes; ++lane) {
    targets.push_back(spread.target_pages(lane));
  }
  return targets;
}

constexpr uint32_t kLanes = 4;
LaneSpread::Options FourLanes(LaneSpreadMode mode = LaneSpreadMode::kMass) {
  return {.mode = mode,
          .n_lanes = kLanes,
          .floor_pages = 2,
          .pages_per_lane = 1000};
}

TEST(LaneSpreadTest, EveryLaneHoldsTheWholeTextWhileItFits) {
  LaneSpread spread(FourLanes());
  spread.Observe(0, 0.9f, 1);
  for (uint32_t n_tokens = 1; n_tokens <= 16 * 24; ++n_tokens) {
    spread.Respread(n_tokens, 100);
    for (uint32_t target : Targets(spread, kLanes)) {
      ASSERT_EQ(target, std::max(2u, (n_tokens + 15) / 16 + 1));
    }
  }
}

TEST(LaneSpreadTest, SharesFollowMassAboveTheFloor) {
  LaneSpread spread(FourLanes());
  const float mass[kLanes] = {0.8f, 0.0f, 0.1f, 0.1f};
  for (uint32_t n_tokens = 16; n_tokens < 16000; n_tokens += 16) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      spread.Observe(lane, mass[lane], 16);
    }
    spread.Respread(n_tokens, 200);
  }
  // Floor: 20 % of the mean of 50 pages; 160 pages by mass.
  EXPECT_EQ(Targets(spread, kLanes), (std::vector<uint32_t>{138, 10, 26, 26}));
}

TEST(LaneSpreadTest, GoesOnElsewhere) {
  const LaneSpread::Options options{
      .n_lanes = 4, .floor_pages = 2, .pages_per_lane = 40};
  const auto step = [](LaneSpread& spread, uint32_t n_tokens) {
    for (uint32_t lane = 0; lane < 4; ++lane) {
      spread.Observe(lane, static_cast<float>(lane * n_tokens % 7) / 8, 16);
    }
    // The total falls once.
    spread.Respread(n_tokens, n_tokens < 1000 ? 60 : 50);
  };
  for (uint32_t left = 16; left < 1200; left += 80) {
    LaneSpread stays(options), elsewhere(options);
    for (uint32_t n = 16; n <= left; n += 16) step(stays, n);
    MoveState(stays, elsewhere);
    for (uint32_t n = left + 16; n < left + 600; n += 16) {
      step(stays, n);
      step(elsewhere, n);
      for (uint32_t lane = 0; lane < 4; ++lane) {
        ASSERT_EQ(elsewhere.target_pages(lane), stays.target_pages(lane))
            << left << " " << n;
      }
    }
  }
}

TEST(LaneSpreadTest, EqualLanesStayEqualWhateverTheirMass) {
  LaneSpread spread(FourLanes(LaneSpreadMode::kEqual));
  for (uint32_t n_tokens = 16; n_tokens < 16000; n_tokens += 16) {
    spread.Observe(0, 0.9f, 16);
    spread.Respread(n_tokens, 201);
  }
  EXPECT_EQ(Targets(spread, kLanes), (std::vector<uint32_t>{51, 50, 50, 50}));
}

TEST(LaneSpreadTest, DenseLanesTakeNoPart) {
  LaneSpread::Options options = FourLanes();
  options.n_dense_lanes = 1;
  LaneSpread spread(options);
  spread.Observe(0, 0.9f, 1);
  spread.Respread(4000, 60);
  EXPECT_EQ(Targets(spread, kLanes), (std::vector<uint32_t>{0, 20, 20, 20}));
}

TEST(LaneSpreadTest, AChangedTotalKeepsTheShape) {
  LaneSpread spread(FourLanes());
  const float mass[kLanes] = {0.8f, 0.0f, 0.1f, 0.1f};
  for (uint32_t n_tokens = 16; n_tokens <= 16000; n_tokens += 16) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      spread.Observe(lane, mass[lane], 16);
    }
    spread.Respread(n_tokens, 200);
  }
  spread.Respread(16001, 100);
  EXPECT_EQ(Targets(spread, kLanes), (std::vector<uint32_t>{69, 5, 13, 13}));
  spread.Respread(16002, 4000);  // now all of it fits
  EXPECT_EQ(Targets(spread, kLanes), std::vector<uint32_t>(kLanes, 1000));
}

TEST(LaneSpreadTest, TargetsStayWithinTotalFloorAndText) {
  std::mt19937 random(19);
  for (int round = 0; round < 50; ++round) {
    auto n_lanes = static_cast<uint32_t>(1 + random() % 12);
    LaneSpread spread({.mode = LaneSpreadMode::kMass,
                       .n_lanes = n_lanes,
                       .floor_pages = 3,
                       .pages_per_lane = 100});
    uint32_t total = n_lanes * (3 + random() % 40);
    uint32_t n_tokens = 0;
    for (int step = 0; step < 400; ++step) {
      uint32_t n_new = random() % 20 == 0 ? 1 + random() % 300 : 1;
      n_tokens += n_new;
      for (uint32_t lane = 0; lane < n_lanes; ++lane) {
        spread.Observe(lane, static_cast<float>(random() % 1000) / 1000, n_new);
      }
      if (random() % 100 == 0) total = n_lanes * (3 + random() % 40);
      spread.Respread(n_tokens, total);
      std::vector<uint32_t> targets = Targets(spread, n_lanes);
      ASSERT_LE(std::accumulate(targets.begin(), targets.end(), 0u), total);
      for (uint32_t target : targets) {
        ASSERT_GE(target, 3u);
        ASSERT_LE(target, std::max(3u, (n_tokens + 15) / 16 + 1));
        ASSERT_LE(target, 100u);
      }
    }
  }
}

TEST(LaneSpreadTest, ALaneMovesByAtMostOnePagePer64Tokens) {
  std::mt19937 random(23);
  LaneSpread spread(FourLanes());
  uint32_t n_tokens = 10000;
  spread.Respread(n_tokens, 200);
  const std::vector<uint32_t> start = Targets(spread, kLanes);
  std::vector<uint32_t> before = start;
  for (int step = 0; step < 2000; ++step) {
    uint32_t n_new = step % 50 == 0 ? 128 : 1;
    n_tokens += n_new;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      spread.Observe(lane, static_cast<float>(random() % 1000) / 1000, n_new);
    }
    spread.Respread(n_tokens, 200);
    std::vector<uint32_t> now = Targets(spread, kLanes);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      auto moved = std::abs(static_cast<int>(now[lane]) -
                            static_cast<int>(before[lane]));
      ASSERT_LE(moved, n_new == 1 ? 1 : 2);
      auto since_start =
          std::abs(static_cast<int>(now[lane]) - static_cast<int>(start[lane]));
      ASSERT_LE(static_cast<uint32_t>(since_start), (n_tokens - 10000) / 64);
    }
    before = now;
  }
  EXPECT_NE(before, start);
}

TEST(LaneSpreadTest, SpreadsByWhatLanesWantWithinFloorAndCap) {
  LaneSpread spread({.mode = LaneSpreadMode::kScore,
                     .n_lanes = 5,
                     .n_dense_lanes = 1,
                     .floor_pages = 4,
                     .pages_per_lane = 40});
  const std::vector<float> wanted = {4, 10, 26, 20};
  spread.SpreadBy(wanted, 1000, 60);
  EXPECT_EQ(spread.target_pages(0), 0u) << "dense";
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(spread.target_pages(1 + i), wanted[i], 1) << i;
  }
  // They hold still, and keep their shape under another total.
  spread.Respread(1200, 60);
  EXPECT_NEAR(spread.target_pages(3), 26, 1);
  spread.Respread(1200, 40);
  uint32_t total = 0;
  for (uint32_t i = 1; i < 5; ++i) total += spread.target_pages(i);
  EXPECT_EQ(total, 40u);
  EXPECT_GT(spread.target_pages(3), spread.target_pages(4));
  EXPECT_GE(spread.target_pages(1), 4u);
  // Nobody gets more than a page table holds, or less than a fifth of the mean.
  spread.SpreadBy(std::vector<float>{0, 0, 0, 200}, 1000, 100);
  EXPECT_EQ(spread.target_pages(4), 40u);
  EXPECT_GE(spread.target_pages(1), 5u);
}

}  // namespace
}  // namespace lkv
