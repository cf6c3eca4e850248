#include "base/check.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

TEST(CheckTest, EvaluatesItsConditionOnce) {
  int evaluations = 0;
  CHECK(++evaluations > 0);
  EXPECT_EQ(evaluations, 1);
}

TEST(CheckDeathTest, NamesTheFileAndTheBrokenPromise) {
  const int moves = 3;
  EXPECT_DEATH(CHECK(moves <= 2),
               "check_test.cc:[0-9]+: CHECK failed: moves <= 2");
}

}  // namespace
}  // namespace lkv
