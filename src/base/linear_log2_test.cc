#include "base/linear_log2.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lkv {
namespace {

TEST(LinearLog2Test, IsExactAtPowersOfTwoAndCloseBetween) {
  for (int e = -30; e <= 3; ++e) {
    const float power = std::ldexp(1.0f, e);
    EXPECT_EQ(LinearLog2(power), static_cast<float>(e));
    EXPECT_EQ(LinearExp2(static_cast<float>(e)), power);
    for (float part = 1; part < 2; part += 0.01f) {
      EXPECT_NEAR(LinearLog2(power * part), std::log2(power * part), 0.0861);
      EXPECT_NEAR(LinearExp2(LinearLog2(power * part)) / power, part, 1e-5);
    }
  }
}

TEST(LinearLog2Test, ItsInverseIsFiniteWhateverItIsGiven) {
  EXPECT_EQ(LinearExp2(-1000), std::ldexp(1.0f, -126));
  EXPECT_EQ(LinearExp2(1000), std::ldexp(1.0f, 127));
}

}  // namespace
}  // namespace lkv
