// Cold pages as the vector sets see them. Include after avx2_simd.h or
// avx512_simd.h.
#pragma once

#include "kernels/cold_layout.h"
#include "kernels/simd_pages.h"

namespace lkv {
namespace {

// The lowest two bits of every byte.
constexpr uint32_t kLowerPairs = 0x03030303;

// The levels of the keys of dimensions d .. d + 4, d a multiple of 4, of
// kLanes slots from `slot` on: byte i of a lane is that of dimension d + i.
inline Simd::I32 ColdKeyLevels(const ColdPage& page, uint32_t slot,
                               uint32_t d) {
  const Simd::I32 pairs = Simd::SetInteger(kLowerPairs);
  const Simd::I32 upper = Simd::ShiftRight(
      Simd::LoadIntegers(page.digest + ColdUpperAt(slot, d)), 2 * page.index);
  const Simd::I32 lower = Simd::ShiftRight(
      Simd::LoadIntegers(page.body + ColdLowerAt(slot, d)), ColdLowerShift(d));
  return Simd::Or(Simd::ShiftLeft(Simd::And(upper, pairs), 2),
                  Simd::And(lower, pairs));
}

// Byte `at` of every lane as a number.
inline Simd::F32 ByteToF32(Simd::I32 x, uint32_t at) {
  return Simd::FromIntegers(
      Simd::And(Simd::ShiftRight(x, 8 * at), Simd::SetInteger(0xff)));
}

// n multiple of 16.
inline void ConvertF16(const uint8_t* from, uint32_t n, float* to) {
  const auto* halves = reinterpret_cast<const uint16_t*>(from);
  for (uint32_t i = 0; i < n; i += Simd::kLanes) {
    Simd::Store(to + i, Simd::LoadF16(halves + i));
  }
}

// Calls visit(slot, d, keys): keys[i] are the keys, kLanes slots from `slot`
// on, of dimension d + i, for i from 0 to 3. All of a page.
template <typename Visit>
inline void ForColdKeys(const ColdPage& page, uint32_t head_dim,
                        const Visit& visit) {
  alignas(64) float scales[2 * kMaxHeadDim];
  ConvertF16(page.digest + ColdKeyScalesAt(head_dim), 2 * head_dim, scales);
  const float* const mins = scales + head_dim;
  for (uint32_t d = 0; d < head_dim; d += 4) {
    for (uint32_t slot = 0; slot < kPageSlots; slot += Simd::kLanes) {
      const Simd::I32 levels = ColdKeyLevels(page, slot, d);
      Simd::F32 keys[4];
#pragma GCC unroll 4
      for (uint32_t i = 0; i < 4; ++i) {
        keys[i] = Simd::MulAdd(ByteToF32(levels, i), Simd::Set(scales[d + i]),
                               Simd::Set(mins[d + i]));
      }
      visit(slot, d, keys);
    }
  }
}

// Calls visit(slot, d, low, high): values, kLanes dimensions from d on, of
// `slot` and of slot + 1. Of the first n_slots slots of a page; an odd one is
// followed by one more.
template <typename Visit>
inline void ForColdValues(const ColdPage& page, uint32_t head_dim,
                          uint32_t n_slots, const Visit& visit) {
  alignas(64) float scales[2 * kPageSlots];
  ConvertF16(page.body + ColdValueScalesAt(head_dim), 2 * kPageSlots, scales);
  const float* const mins = scales + kPageSlots;
  const auto value = [&](Simd::I32 bytes, uint32_t slot) {
    const Simd::I32 levels =
        Simd::And(Simd::ShiftRight(bytes, slot % 4 * 8 + ColdValueShift(slot)),
                  Simd::SetInteger(0xf));
    return Simd::MulAdd(Simd::FromIntegers(levels), Simd::Set(scales[slot]),
                        Simd::Set(mins[slot]));
  };
  for (uint32_t slot = 0; slot < n_slots; slot += 2) {
    for (uint32_t d = 0; d < head_dim; d += Simd::kLanes) {
      const Simd::I32 bytes = Simd::LoadIntegers(
          page.body + ColdValueAt(head_dim, slot / 4 * 4, d));
      visit(slot, d, value(bytes, slot), value(bytes, slot + 1));
    }
  }
}

}  // namespace
}  // namespace lkv
