// The scale of a row of int8, the same in every kernel set. Internal linkage,
// so that a set's instructions stay in its own object.
#pragma once

#include <cstdint>

namespace lkv {
namespace {

// Below, 1 / scale overflows; such rows are 0 beside all others.
constexpr float kSmallestInt8Row = 1e-30f;

struct Int8Scale {
  uint16_t bf16;
  float inverse;
};

// largest / 127, rounded up to bf16, so that no integer is above 127.
inline Int8Scale Int8ScaleOf(float largest) {
  if (!(largest > kSmallestInt8Row)) return {0, 0};
  float scale = largest / 127;
  uint32_t bits;
  __builtin_memcpy(&bits, &scale, sizeof(bits));
  bits = (bits + 0xffff) & 0xffff0000;
  __builtin_memcpy(&scale, &bits, sizeof(bits));
  return {static_cast<uint16_t>(bits >> 16), 1 / scale};
}

}  // namespace
}  // namespace lkv
