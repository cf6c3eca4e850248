// Where things are in a page of int8 (see PageRun), and the scale of a row: the
// same in every kernel set. Internal linkage, so that a set's instructions stay
// in its own object.
#pragma once

#include "kernels/kernel_table.h"

namespace lkv {
namespace {

// Byte of dimension d of a slot's key.
inline size_t Int8KeyAt(uint32_t slot, uint32_t d) {
  return (size_t{d / 2} * kPageSlots + slot) * 2 + d % 2;
}
// Byte of dimension d of a slot's value.
inline size_t Int8ValueAt(uint32_t head_dim, uint32_t slot, uint32_t d) {
  return size_t{kPageSlots} * head_dim + (size_t{slot / 2} * head_dim + d) * 2 +
         slot % 2;
}
// First byte of the scales.
inline size_t Int8ScalesAt(uint32_t head_dim) {
  return size_t{2} * kPageSlots * head_dim;
}

inline void PutInt8Key(uint8_t* page, uint32_t slot, uint32_t head_dim,
                       const int8_t* row, uint16_t scale) {
  for (uint32_t d = 0; d < head_dim; d += 2) {
    __builtin_memcpy(page + Int8KeyAt(slot, d), row + d, 2);
  }
  reinterpret_cast<uint16_t*>(page + Int8ScalesAt(head_dim))[slot] = scale;
}

inline void PutInt8Value(uint8_t* page, uint32_t slot, uint32_t head_dim,
                         const int8_t* row, uint16_t scale) {
  int8_t* values =
      reinterpret_cast<int8_t*>(page) + Int8ValueAt(head_dim, slot, 0);
  for (uint32_t d = 0; d < head_dim; ++d) values[size_t{d} * 2] = row[d];
  reinterpret_cast<uint16_t*>(
      page + Int8ScalesAt(head_dim))[kPageSlots + slot] = scale;
}

// Writes one token's k and v, each made integers by the set's own kQuantize: it
// returns the bf16 scale.
template <uint16_t (*kQuantize)(const float* x, uint32_t n, int8_t* integers)>
void WriteInt8Slot(uint8_t* page, uint32_t slot, uint32_t head_dim,
                   const float* k, const float* v) {
  int8_t row[kMaxHeadDim];
  const uint16_t key_scale = kQuantize(k, head_dim, row);
  PutInt8Key(page, slot, head_dim, row, key_scale);
  const uint16_t value_scale = kQuantize(v, head_dim, row);
  PutInt8Value(page, slot, head_dim, row, value_scale);
}

// Rows that are smaller than this are taken for 0, long before 1 / scale
// overflows.
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
