#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"

namespace lkv {
namespace {

uint32_t BitsOf(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof(bits));
  return bits;
}

float FloatOf(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}

// Drops the lowest n_bits of value, rounding to nearest, ties to even.
uint32_t RoundShift(uint32_t value, uint32_t n_bits) {
  uint32_t half = uint32_t{1} << (n_bits - 1);
  uint32_t odd = (value >> n_bits) & 1;
  return (value + half - 1 + odd) >> n_bits;
}

}  // namespace

float F16ToF32(uint16_t h) {
  uint32_t sign = uint32_t{h & 0x8000u} << 16;
  uint32_t exponent = (h >> 10) & 31;
  uint32_t fraction = h & 0x3ff;
  if (exponent == 31) {
    // Infinity, or NaN made quiet as the processor does it.
    uint32_t quiet = fraction != 0 ? 0x400000 : 0;
    return FloatOf(sign | 0x7f800000 | quiet | fraction << 13);
  }
  if (exponent == 0) {
    // fraction * 2^-24, exact in f32.
    float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return FloatOf(sign | BitsOf(magnitude));
  }
  return FloatOf(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

uint16_t F32ToF16(float f) {
  uint32_t bits = BitsOf(f);
  uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) {  // NaN: quiet, the upper payload kept
    return static_cast<uint16_t>(sign | 0x7e00 | ((bits >> 13) & 0x3ff));
  }
  if (bits >= 0x47800000) return sign | 0x7c00;  // 65536 and above: infinity
  if (bits >= 0x38800000) {  // 2^-14 and above: a normal half
    // A carry out of the fraction raises the exponent, up to infinity.
    return static_cast<uint16_t>(sign |
                                 RoundShift(bits - ((127u - 15) << 23), 13));
  }
  if (bits < 0x33000000) return sign;  // below 2^-25: zero
  uint32_t significand = (bits & 0x7fffff) | 0x800000;
  uint32_t exponent = bits >> 23;
  return static_cast<uint16_t>(sign | RoundShift(significand, 126 - exponent));
}

float BF16ToF32(uint16_t h) { return FloatOf(uint32_t{h} << 16); }

uint16_t F32ToBF16(float f) {
  uint32_t bits = BitsOf(f);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  }
  return static_cast<uint16_t>(RoundShift(bits, 16));
}

}  // namespace lkv
