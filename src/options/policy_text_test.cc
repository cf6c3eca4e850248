#include "options/policy_text.h"

#include <gtest/gtest.h>

#include <string>

namespace lkv {
namespace {

TEST(PolicyTextTest, TakesTheNamesOfTheKeyPolicy) {
  EXPECT_EQ(*ParsePolicy("full"), PolicyName::kFull);
  EXPECT_EQ(*ParsePolicy("ema"), PolicyName::kEma);
  EXPECT_EQ(*ParsePolicy("repeat"), PolicyName::kRepeat);
  const Status unknown = ParsePolicy("best").status();
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(unknown.message().starts_with("policy does not take "))
      << unknown.message();
}

}  // namespace
}  // namespace lkv
