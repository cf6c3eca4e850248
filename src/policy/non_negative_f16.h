// Rows of non-negative halves, the form in which per-slot state is kept.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace lkv {

// out[i] = half[i] for finite halves without sign. Written without branches so
// that the compiler turns the loop into vector code: scoring reads two halves
// per slot, and a call per half would cost more than all else.
inline void WidenNonNegativeF16(const uint16_t* half, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits = half[i];
    // Exponent bias 15 becomes 127; below 2^-14 the bits count steps of 2^-24.
    float normal = std::bit_cast<float>((bits << 13) + (uint32_t{112} << 23));
    float subnormal = static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-24f;
    out[i] = bits < 0x400 ? subnormal : normal;
  }
}

}  // namespace lkv
