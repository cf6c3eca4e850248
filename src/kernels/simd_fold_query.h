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

// kHeads query heads for one digest: the estimated logit of a key with the
// upper bits u, for head g, is offsets[g] + 4 units[g] * sum bytes[g] u.
template <int kHeads>
struct FoldedQueries {
  const int8_t* bytes;  // [kHeads, head_dim]
  alignas(64) float units[Simd::kLanes];
  alignas(64) float offsets[Simd::kLanes];

  // q [kHeads, head_dim]. The bytes, units and offsets of ColdEstimates are
  // written to the last three.
  [[gnu::always_inline]] void Fold(const uint8_t* digest, uint32_t head_dim,
                                   const float* q, int8_t* to_bytes,
                                   float* to_units, float* to_offsets) {
    const auto* const scales =
        reinterpret_cast<const uint16_t*>(digest + ColdKeyScalesAt(head_dim));
    const uint16_t* const mins = scales + head_dim;
    Simd::F32 top[kHeads];
    Simd::F32 offset[kHeads];
    Simd::F32 sum[kHeads];
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) top[g] = offset[g] = sum[g] = Simd::Zero();
    for (uint32_t d = 0; d < head_dim; d += Simd::kLanes) {
      const Simd::F32 scale = Simd::LoadF16(scales + d);
      const Simd::F32 middle = Simd::MulAdd(scale, Simd::Set(kMeanColdLevel),
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
        Simd::StoreLowBytes(to_bytes + g * head_dim + d, Simd::BitsOf(rounded));
        sum[g] = Simd::Add(sum[g], Simd::Sub(rounded, rounder));
      }
    }
    bytes = to_bytes;
    const Simd::F32 sums = Simd::SumsOf<kHeads>(sum);
    Simd::Store(offsets, Simd::NegMulAdd(sums, Simd::Set(kMeanUpperLevel),
                                         Simd::SumsOf<kHeads>(offset)));
    alignas(64) float of_lower[Simd::kLanes];
    Simd::Store(of_lower, Simd::Mul(sums, Simd::Set(-kUnreadLower)));
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) {
      to_units[g] = units[g];
      to_offsets[g] = of_lower[g];
    }
  }
};

}  // namespace
}  // namespace lkv
