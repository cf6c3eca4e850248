// Queries with the scales of a digest's channels folded into them, as bytes,
// for the vector sets. Include after avx2_simd.h or avx512_simd.h.
#pragma once

#include "kernels/cold_layout.h"
#include "kernels/simd_pages.h"

namespace lkv {
namespace {

// Prefetches all of a digest but its upper bits.
inline void PrefetchScales(const uint8_t* digest, uint32_t head_dim) {
  for (size_t i = ColdKeyScalesAt(head_dim);
       i < kColdDigestBytesPerDim * head_dim; i += 64) {
    _mm_prefetch(digest + i, _MM_HINT_T1);
  }
}

// Lane by lane the unit that `largest` is rounded to: see cold_layout.h.
inline Simd::F32 UnitsOf(Simd::F32 largest, float room, float share) {
  const Simd::F32 limit = Simd::Mul(
      Simd::Max(largest, Simd::Set(kSmallestFolded)), Simd::Set(room));
  return Simd::Mul(Simd::FromBits(Simd::And(Simd::BitsOf(limit),
                                            Simd::SetInteger(kExponentBits))),
                   Simd::Set(share));
}

// kHeads query heads for one digest: the logit of a key whose levels are
// lowest + x, for head g, is offsets[g] + units[g] * sum bytes[g] x.
template <int kHeads>
struct FoldedQueries {
  alignas(64) int8_t bytes[kHeads][kMaxHeadDim];
  alignas(64) float units[Simd::kLanes];
  alignas(64) float offsets[Simd::kLanes];

  // q [kHeads, head_dim]. What rounding takes away counts as if every x were
  // `centre`. Both numbers are constants where this is called.
  [[gnu::always_inline]] void Fold(const uint8_t* digest, uint32_t head_dim,
                                   const float* q, float lowest, float centre) {
    const auto* const scales =
        reinterpret_cast<const uint16_t*>(digest + ColdKeyScalesAt(head_dim));
    const uint16_t* const mins = scales + head_dim;
    Simd::F32 top[kHeads];
    Simd::F32 offset[kHeads];
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) top[g] = offset[g] = Simd::Zero();
    for (uint32_t d = 0; d < head_dim; d += Simd::kLanes) {
      const Simd::F32 scale = Simd::LoadF16(scales + d);
      const Simd::F32 middle = Simd::MulAdd(scale, Simd::Set(lowest + centre),
                                            Simd::LoadF16(mins + d));
#pragma GCC unroll 8
      for (int g = 0; g < kHeads; ++g) {
        const Simd::F32 q_of_d = Simd::Load(q + g * head_dim + d);
        top[g] = Simd::Max(top[g], Simd::Abs(Simd::Mul(q_of_d, scale)));
        offset[g] = Simd::MulAdd(q_of_d, middle, offset[g]);
      }
    }
    const Simd::F32 unit =
        UnitsOf(Simd::MaximaOf<kHeads>(top), kFoldedRoom, kFoldedShare);
    Simd::Store(units, unit);
    // Adding this to a product rounds it to units, whose number its lowest bits
    // then are.
    alignas(64) float rounders[Simd::kLanes];
    Simd::Store(rounders, Simd::Mul(unit, Simd::Set(kRoundToInteger)));
    for (uint32_t d = 0; d < head_dim; d += Simd::kLanes) {
      const Simd::F32 scale = Simd::LoadF16(scales + d);
#pragma GCC unroll 8
      for (int g = 0; g < kHeads; ++g) {
        const Simd::F32 rounder = Simd::Set(rounders[g]);
        const Simd::F32 rounded =
            Simd::MulAdd(Simd::Load(q + g * head_dim + d), scale, rounder);
        Simd::StoreLowBytes(bytes[g] + d, Simd::BitsOf(rounded));
        if (centre == 0) continue;
        offset[g] = Simd::NegMulAdd(Simd::Sub(rounded, rounder),
                                    Simd::Set(centre), offset[g]);
      }
    }
    Simd::Store(offsets, Simd::SumsOf<kHeads>(offset));
  }
};

}  // namespace
}  // namespace lkv
