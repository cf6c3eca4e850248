#include "policy/heavy_hitters.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace lkv {
namespace {

HeavyHitters Find(const std::vector<float>& mass, double share,
                  uint32_t max_count) {
  std::vector<float> scratch(mass.size());
  return FindHeavyHitters(mass, share, max_count, scratch);
}

TEST(HeavyHittersTest, TakesTheFewestThatCoverTheShare) {
  std::vector<float> mass = {0.05f, 0.5f, 0.04f, 0.3f, 0.11f};
  HeavyHitters found = Find(mass, 0.75, 5);
  EXPECT_EQ(found.count(), 2u);
  EXPECT_EQ(found.threshold, 0.3f);
  EXPECT_EQ(Find(mass, 0.85, 5).count(), 3u);
}

TEST(HeavyHittersTest, TheCapCutsTheSet) {
  std::vector<float> mass(100, 0.01f);
  HeavyHitters found = Find(mass, 0.9, 10);
  EXPECT_EQ(found.count(), 10u);
  EXPECT_EQ(found.n_at_threshold, 10u);
  EXPECT_EQ(found.threshold, 0.01f);
}

TEST(HeavyHittersTest, MassThatIsNoNumberHasNoHitters) {
  std::vector<float> mass(20, 0.05f);
  mass[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Find(mass, 0.9, 10).count(), 0u);
}

TEST(HeavyHittersTest, NoMassHasNoHitters) {
  EXPECT_EQ(Find({}, 0.9, 10).count(), 0u);
  EXPECT_EQ(Find(std::vector<float>(8, 0.0f), 0.9, 10).count(), 0u);
  EXPECT_EQ(Find(std::vector<float>(8, 1.0f), 0.9, 0).count(), 0u);
}

TEST(HeavyHittersTest, AgreesWithSorting) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 300; ++round) {
    std::vector<float> mass(1 + random() % 300);
    // A wide spread, from 1e-9 to 1, with some ties and zeros.
    for (float& m : mass) {
      m = std::exp(4 * normal(random) - 6);
      if (random() % 8 == 0) m = 0.001f;
      if (random() % 8 == 0) m = 0;
    }
    auto max_count = static_cast<uint32_t>(1 + random() % mass.size());
    HeavyHitters found = Find(mass, 0.9, max_count);

    std::vector<float> sorted = mass;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    double total = 0;
    for (float m : sorted) total += m;
    double covered = 0;
    uint32_t expected = 0;
    while (expected < max_count && covered < 0.9 * total) {
      covered += sorted[expected++];
    }
    ASSERT_EQ(found.count(), expected) << round;
    if (expected > 0) {
      ASSERT_EQ(found.threshold, sorted[expected - 1]) << round;
    }
  }
}

}  // namespace
}  // namespace lkv
