#include "policy/tier_planner.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace lkv {
namespace {

// A lane's plan input with its arrays.
struct Case {
  std::vector<uint8_t> is_protected;
  std::vector<float> attention;
  std::vector<float> score;
  LanePlanInput in;

  std::vector<uint32_t> Choose() {
    in.is_protected = is_protected;
    in.attention = attention;
    in.score = score;
    std::vector<uint32_t> victims(score.size());
    victims.resize(ChooseVictims(in, victims));
    return victims;
  }
};

Case OpenPages(std::vector<float> score) {
  Case c;
  c.is_protected.assign(score.size(), 0);
  c.attention = score;
  c.score = std::move(score);
  c.in.max_moves = 1000;
  return c;
}

TEST(TierPlannerTest, TheLowestScoresLeaveInDescendingIndexOrder) {
  Case c = OpenPages({5, 1, 4, 2, 3});
  c.in.n_leave = 3;
  EXPECT_EQ(c.Choose(), (std::vector<uint32_t>{4, 3, 1}));
}

TEST(TierPlannerTest, OfEqualScoresTheOldestLeaves) {
  Case c = OpenPages({1, 1, 1, 1});
  c.in.n_leave = 2;
  EXPECT_EQ(c.Choose(), (std::vector<uint32_t>{1, 0}));
}

TEST(TierPlannerTest, ProtectedPagesStayEvenIfTooFewAreLeft) {
  Case c = OpenPages({1, 2, 3});
  c.is_protected = {1, 0, 1};
  c.in.n_leave = 3;
  EXPECT_EQ(c.Choose(), (std::vector<uint32_t>{1}));
}

TEST(TierPlannerTest, TheLowestGoFirstWhenMovesAreFew) {
  Case c = OpenPages({3, 1, 2, 0});
  c.in.n_leave = 3;
  c.in.max_moves = 2;
  EXPECT_EQ(c.Choose(), (std::vector<uint32_t>{3, 1}));
}

TEST(TierPlannerTest, TwoStagesSaveTheMostAttendedWhateverItsScore) {
  Case c = OpenPages({0, 1, 2, 3});
  c.attention = {9, 0, 0, 0};
  c.in.n_leave = 2;
  EXPECT_EQ(c.Choose(), (std::vector<uint32_t>{1, 0}));
  c.in.two_stage = true;  // page 0 by attention, then page 3 by score
  EXPECT_EQ(c.Choose(), (std::vector<uint32_t>{2, 1}));
}

TEST(TierPlannerTest, ThresholdEvictsBelowItDownToTheFloor) {
  Case c = OpenPages({1, 5, 2, 6, 3});
  c.in.rule = EvictionRule::kScoreThreshold;
  c.in.threshold = 4;
  c.in.floor_pages = 0;
  EXPECT_EQ(c.Choose(), (std::vector<uint32_t>{4, 2, 0}));
  c.in.floor_pages = 3;
  EXPECT_EQ(c.Choose(), (std::vector<uint32_t>{2, 0}));
}

TEST(TierPlannerTest, TheCapGoesBeyondTheThreshold) {
  Case c = OpenPages({1, 5, 2, 6, 3});
  c.in.rule = EvictionRule::kScoreThreshold;
  c.in.threshold = 1.5f;
  c.in.floor_pages = 5;
  c.in.n_leave = 2;
  EXPECT_EQ(c.Choose(), (std::vector<uint32_t>{2, 0}));
}

TEST(TierPlannerTest, SizeAwareIgnoresThreshold) {
  Case c = OpenPages({1, 5, 2});
  c.in.threshold = 9;
  EXPECT_TRUE(c.Choose().empty());
}

// The rules once more, one page at a time.
std::vector<uint32_t> ChooseNaively(const Case& c) {
  const LanePlanInput& in = c.in;
  std::vector<uint32_t> rest;
  for (uint32_t p = 0; p < c.score.size(); ++p) {
    if (c.is_protected[p] == 0) rest.push_back(p);
  }
  auto n_candidates = static_cast<uint32_t>(rest.size());
  uint32_t n_leave = std::min(in.n_leave, n_candidates);
  // min_element and max_element with <: the first, that is the oldest, of equal
  // scores leaves; the newest of equal ones is saved.
  if (in.two_stage) {
    for (uint32_t k = 0; k < (n_candidates - n_leave + 1) / 2; ++k) {
      auto best = rest.begin();
      for (auto it = rest.begin(); it != rest.end(); ++it) {
        if (c.attention[*it] >= c.attention[*best]) best = it;
      }
      rest.erase(best);
    }
  }
  std::vector<uint32_t> victims;
  while (victims.size() < in.max_moves && !rest.empty()) {
    auto worst = rest.begin();
    for (auto it = rest.begin(); it != rest.end(); ++it) {
      if (c.score[*it] < c.score[*worst]) worst = it;
    }
    bool forced = victims.size() < n_leave;
    bool below = in.rule == EvictionRule::kScoreThreshold &&
                 c.score[*worst] < in.threshold &&
                 c.score.size() - victims.size() > in.floor_pages;
    if (!forced && !below) break;
    victims.push_back(*worst);
    rest.erase(worst);
  }
  std::sort(victims.rbegin(), victims.rend());
  return victims;
}

TEST(TierPlannerTest, AgreesWithChoosingOnePageAtATime) {
  std::mt19937 random(3);
  auto up_to = [&](uint32_t n) -> uint32_t { return random() % (n + 1); };
  for (int round = 0; round < 5000; ++round) {
    Case c;
    uint32_t n = up_to(12);
    for (uint32_t p = 0; p < n; ++p) {
      c.is_protected.push_back(up_to(3) == 0);
      c.attention.push_back(static_cast<float>(up_to(5)));  // many ties
      c.score.push_back(static_cast<float>(up_to(5)));
    }
    c.in.n_leave = up_to(12);
    c.in.max_moves = up_to(12);
    c.in.two_stage = up_to(1) == 1;
    c.in.rule = up_to(1) == 1 ? EvictionRule::kScoreThreshold
                              : EvictionRule::kSizeAware;
    c.in.threshold = static_cast<float>(up_to(6));
    c.in.floor_pages = up_to(12);
    std::vector<uint32_t> victims = c.Choose();
    ASSERT_EQ(victims, ChooseNaively(c)) << "round " << round;
    ASSERT_LE(victims.size(), c.in.max_moves);
    for (uint32_t victim : victims) ASSERT_EQ(c.is_protected[victim], 0);
  }
}

}  // namespace
}  // namespace lkv
