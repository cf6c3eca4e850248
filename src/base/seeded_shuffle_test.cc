#include "base/seeded_shuffle.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lkv {
namespace {

std::vector<int> Shuffled(uint64_t seed) {
  std::vector<int> things = {0, 1, 2, 3, 4, 5, 6, 7};
  std::mt19937_64 random(seed);
  SeededShuffle(things, random);
  return things;
}

TEST(SeededShuffleTest, ASeedMeansTheSameEverywhere) {
  EXPECT_EQ(Shuffled(1), std::vector<int>({0, 3, 2, 4, 1, 5, 6, 7}));
  EXPECT_NE(Shuffled(1), Shuffled(2));
}

TEST(SeededShuffleTest, EveryThingIsSomewhereAndMayBeAnywhere) {
  std::vector<int> n_first(8);
  for (uint64_t seed = 0; seed < 800; ++seed) {
    std::vector<int> things = Shuffled(seed);
    ++n_first[static_cast<size_t>(things[0])];
    std::sort(things.begin(), things.end());
    EXPECT_EQ(things, std::vector<int>({0, 1, 2, 3, 4, 5, 6, 7}));
  }
  for (int n : n_first) EXPECT_NEAR(n, 100, 50);
}

}  // namespace
}  // namespace lkv
