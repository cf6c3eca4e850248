// A query with the scales of a digest's channels folded into it, for the
// reference kernels of cold groups.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cold_layout.h"

namespace lkv {
namespace {

// The estimated logit of a key with the upper bits u is offset + 4 unit sum
// bytes u; lower bits x add lower_offset + unit sum bytes x.
struct FoldedQuery {
  int8_t bytes[kMaxHeadDim] = {};
  float unit = 0;
  float offset = 0;
  float lower_offset = 0;

  FoldedQuery(const uint8_t* digest, uint32_t head_dim, const float* q) {
    const auto* scales =
        reinterpret_cast<const uint16_t*>(digest + ColdKeyScalesAt(head_dim));
    const uint16_t* mins = scales + head_dim;
    float largest = 0;
    for (uint32_t d = 0; d < head_dim; ++d) {
      const float scale = F16ToF32(scales[d]);
      offset += q[d] * (F16ToF32(mins[d]) + kMeanColdLevel * scale);
      largest = std::max(largest, std::fabs(q[d] * scale));
    }
    unit = UnitOf(largest);
    int32_t sum = 0;
    for (uint32_t d = 0; d < head_dim; ++d) {
      // Exact before it is rounded, as a fused multiplication is.
      const double product = double{q[d]} * double{F16ToF32(scales[d])};
      bytes[d] = static_cast<int8_t>(std::lrint(product / double{unit}));
      sum += bytes[d];
    }
    offset -= kMeanUpperLevel * unit * static_cast<float>(sum);
    lower_offset = -kUnreadLower * unit * static_cast<float>(sum);
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
