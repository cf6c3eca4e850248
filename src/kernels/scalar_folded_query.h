// A query with the scales of a digest's channels folded into it, for the
// reference kernels of cold groups.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cold_layout.h"

namespace lkv {
namespace {

// The logit of a key whose levels are lowest + x is offset + unit * sum bytes
// x. What rounding takes away counts as if every x were `centre`.
struct FoldedQuery {
  int8_t bytes[kMaxHeadDim] = {};
  float unit = 0;
  float offset = 0;

  FoldedQuery() = default;
  FoldedQuery(const uint8_t* digest, uint32_t head_dim, const float* q,
              float lowest, float centre) {
    const auto* scales =
        reinterpret_cast<const uint16_t*>(digest + ColdKeyScalesAt(head_dim));
    const uint16_t* mins = scales + head_dim;
    float largest = 0;
    for (uint32_t d = 0; d < head_dim; ++d) {
      const float scale = F16ToF32(scales[d]);
      offset += q[d] * (F16ToF32(mins[d]) + (lowest + centre) * scale);
      largest = std::max(largest, std::fabs(q[d] * scale));
    }
    unit = UnitOf(largest);
    for (uint32_t d = 0; d < head_dim; ++d) {
      // Exact before it is rounded, as a fused multiplication is.
      const double product = double{q[d]} * double{F16ToF32(scales[d])};
      bytes[d] = static_cast<int8_t>(std::lrint(product / double{unit}));
      offset -= centre * unit * static_cast<float>(bytes[d]);
    }
  }

  float Logit(int32_t sum) const {
    return offset + unit * static_cast<float>(sum);
  }

 private:
  static float UnitOf(float largest) {
    const float limit = std::max(largest, kSmallestFolded) * kFoldedRoom;
    uint32_t bits;
    std::memcpy(&bits, &limit, sizeof(bits));
    bits &= kExponentBits;
    float power;
    std::memcpy(&power, &bits, sizeof(power));
    return power * kFoldedShare;
  }
};

}  // namespace
}  // namespace lkv
