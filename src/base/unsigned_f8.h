// Unsigned 8-bit floats: 5 bits of exponent, 3 of mantissa; above 2^-31 to just
// below 2, and 0. Rounded to nearest the error is 6 % at most, 2 % on average:
// enough to rank attention masses by, in a quarter of the bytes of f32.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace lkv {

inline constexpr float kMaxUnsignedF8 = 1.875f;
// 2^-31 as an f32 without its lowest 20 bits.
inline constexpr uint32_t kUnsignedF8Zero = (127u - 31u) << 3;

// Of a finite value >= 0; larger ones than kMaxUnsignedF8 become that.
inline uint8_t F32ToUnsignedF8(float value) {
  // An f32 without its lowest 20 bits has the same mantissa bits; what is left
  // counts from 2^-31, which stands for 0.
  constexpr uint32_t kDroppedBits = 20;
  const uint32_t bits =
      std::bit_cast<uint32_t>(std::min(value, kMaxUnsignedF8));
  const uint32_t rounded = (bits + (1u << (kDroppedBits - 1))) >> kDroppedBits;
  return rounded <= kUnsignedF8Zero
             ? 0
             : static_cast<uint8_t>(rounded - kUnsignedF8Zero);
}

inline float UnsignedF8ToF32(uint8_t code) {
  return code == 0 ? 0 : std::bit_cast<float>((code + kUnsignedF8Zero) << 20);
}

// LinearLog2 (base/linear_log2.h) of a code's value; of 0: -31.
inline float UnsignedF8Log2(uint8_t code) {
  return static_cast<float>(code) * 0.125f - 31;
}

}  // namespace lkv
