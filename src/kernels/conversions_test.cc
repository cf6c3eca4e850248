#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/kernel_table.h"

namespace lkv {
namespace {

// A 16-bit float with the given number of fraction bits, by its definition.
double Decode(uint16_t bits, int n_fraction_bits) {
  int n_exponent_bits = 15 - n_fraction_bits;
  int bias = (1 << (n_exponent_bits - 1)) - 1;
  int exponent = (bits & 0x7fff) >> n_fraction_bits;
  double fraction = bits & ((1 << n_fraction_bits) - 1);
  double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << n_exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) {
    return sign * std::ldexp(fraction, 1 - bias - n_fraction_bits);
  }
  return sign * std::ldexp(fraction + (1 << n_fraction_bits),
                           exponent - bias - n_fraction_bits);
}

struct Half {
  const char* name;
  int n_fraction_bits;
  float (*to_f32)(uint16_t);
  uint16_t (*from_f32)(float);
};

class ConversionsTest : public ::testing::TestWithParam<Half> {};

INSTANTIATE_TEST_SUITE_P(Halves, ConversionsTest,
                         ::testing::Values(Half{"f16", 10, F16ToF32, F32ToF16},
                                           Half{"bf16", 7, BF16ToF32,
                                                F32ToBF16}),
                         [](const auto& info) { return info.param.name; });

TEST_P(ConversionsTest, EveryHalfHasItsValueAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    uint16_t half = static_cast<uint16_t>(bits);
    double value = Decode(half, GetParam().n_fraction_bits);
    float converted = GetParam().to_f32(half);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(converted)) << bits;
      ASSERT_TRUE(std::isnan(GetParam().to_f32(GetParam().from_f32(converted))))
          << bits;
    } else {
      ASSERT_EQ(converted, value) << bits;
      ASSERT_EQ(GetParam().from_f32(converted), half) << bits;
    }
  }
}

// Between two neighbours the nearer wins, in the middle the even one. f32
// holds the middle exactly.
TEST_P(ConversionsTest, RoundsToNearestEven) {
  uint16_t infinity =
      static_cast<uint16_t>(GetParam().n_fraction_bits == 10 ? 0x7c00 : 0x7f80);
  for (uint16_t half = 0; half + 1 < infinity; ++half) {
    uint16_t next = static_cast<uint16_t>(half + 1);
    double low = Decode(half, GetParam().n_fraction_bits);
    double high = Decode(next, GetParam().n_fraction_bits);
    float middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(middle, (low + high) / 2);
    uint16_t even = half % 2 == 0 ? half : next;
    ASSERT_EQ(GetParam().from_f32(middle), even) << half;
    ASSERT_EQ(GetParam().from_f32(-middle), even | 0x8000) << half;
    ASSERT_EQ(GetParam().from_f32(std::nextafter(middle, 0.0f)), half) << half;
    ASSERT_EQ(GetParam().from_f32(
                  std::nextafter(middle, std::numeric_limits<float>::max())),
              next)
        << half;
  }
}

TEST(F32ToF16Test, TooLargeBecomesInfinity) {
  EXPECT_EQ(F32ToF16(65504.0f), 0x7bff);
  EXPECT_EQ(F32ToF16(65519.996f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(-1e30f), 0xfc00);
}

}  // namespace
}  // namespace lkv
