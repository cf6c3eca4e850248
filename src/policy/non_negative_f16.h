// Rows of non-negative halves, the form in which per-slot state is kept.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace lkv {

// The largest finite half: what a larger statistic is stored as.
inline constexpr float kMaxF16 = 65504;

// out[i] = half[i] for finite halves without sign. Without branches, the choice
// between the two cases made on bits, so that compilers turn the loop into
// vector code: scoring reads a half per slot, and one call or jump per half
// costs more than all the rest.
inline void WidenNonNegativeF16(const uint16_t* half, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits = half[i];
    // Exponent bias 15 becomes 127; below 2^-14 the bits count steps of 2^-24.
    uint32_t normal = (bits << 13) + (uint32_t{112} << 23);
    uint32_t subnormal = std::bit_cast<uint32_t>(
        static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-24f);
    uint32_t is_subnormal = bits < 0x400 ? ~uint32_t{0} : 0;
    out[i] = std::bit_cast<float>((subnormal & is_subnormal) |
                                  (normal & ~is_subnormal));
  }
}

}  // namespace lkv
