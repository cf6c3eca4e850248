#include "base/unsigned_f8.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lkv {
namespace {

TEST(UnsignedF8Test, KeepsEveryCode) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    EXPECT_EQ(F32ToUnsignedF8(UnsignedF8ToF32(byte)), byte) << code;
    if (code > 0) {
      EXPECT_GT(UnsignedF8ToF32(byte),
                UnsignedF8ToF32(static_cast<uint8_t>(code - 1)));
    }
  }
  EXPECT_EQ(UnsignedF8ToF32(0), 0);
  EXPECT_EQ(UnsignedF8ToF32(255), kMaxUnsignedF8);
}

TEST(UnsignedF8Test, IsWithinSixPercent) {
  for (float x = 0x1.2p-31f; x <= 1; x *= 1.003f) {
    EXPECT_NEAR(UnsignedF8ToF32(F32ToUnsignedF8(x)) / x, 1, 0.0625) << x;
  }
}

TEST(UnsignedF8Test, EndsAtBothSides) {
  EXPECT_EQ(F32ToUnsignedF8(0), 0);
  EXPECT_EQ(F32ToUnsignedF8(1e-12f), 0);
  EXPECT_EQ(F32ToUnsignedF8(1e-45f), 0) << "denormal";
  EXPECT_EQ(F32ToUnsignedF8(100), 255);
}

}  // namespace
}  // namespace lkv
