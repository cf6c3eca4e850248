// exp for the vector sets. Include after avx2_simd.h or avx512_simd.h.
#pragma once

namespace lkv {
namespace {

// exp(x) with a relative error of at most 2e-7 for x in [-87.3, 88]. Below it
// is 0 (so that -infinity masks a logit), above it is exp(88), NaN stays NaN.
//
// exp(x) = 2^k exp(r), k = round(x / ln 2), |r| <= ln 2 / 2. ln 2 is split in
// two so that r keeps its last bits when k is large; the polynomial goes
// through exp at the Chebyshev nodes of the interval (2.1e-8, where the Taylor
// series of the same degree is 1.2e-7 off).
inline Simd::F32 Exp(Simd::F32 x) {
  const Simd::F32 smallest = Simd::Set(-87.3f);
  Simd::F32 clamped = Simd::Min(Simd::Set(88.0f), Simd::Max(smallest, x));
  Simd::F32 k =
      Simd::RoundToIntegral(Simd::Mul(clamped, Simd::Set(1.44269504f)));
  Simd::F32 r = Simd::NegMulAdd(k, Simd::Set(0.693145752f), clamped);
  r = Simd::NegMulAdd(k, Simd::Set(1.42860677e-6f), r);
  Simd::F32 p = Simd::Set(1.39412133e-3f);
  p = Simd::MulAdd(p, r, Simd::Set(8.37520976e-3f));
  p = Simd::MulAdd(p, r, Simd::Set(4.16663513e-2f));
  p = Simd::MulAdd(p, r, Simd::Set(1.66664138e-1f));
  p = Simd::MulAdd(p, r, Simd::Set(0.5f));
  p = Simd::MulAdd(p, r, Simd::Set(1.0f));
  p = Simd::MulAdd(p, r, Simd::Set(1.0f));
  return Simd::ScaleUnlessBelow(x, smallest, p, k);
}

// exp(x) for x <= 0 with a relative error of at most 1.1e-4, in two thirds of
// the instructions; 0 below -87.3. 2 to the fraction goes through the Chebyshev
// nodes of [-1/2, 1/2].
inline Simd::F32 RoughExp(Simd::F32 x) {
  const Simd::F32 smallest = Simd::Set(-87.3f);
  const Simd::F32 log2 =
      Simd::Mul(Simd::Max(smallest, x), Simd::Set(1.44269504f));
  const Simd::F32 k = Simd::RoundToIntegral(log2);
  const Simd::F32 r = Simd::Sub(log2, k);
  Simd::F32 p = Simd::Set(5.58382829e-2f);
  p = Simd::MulAdd(p, r, Simd::Set(2.42639479e-1f));
  p = Simd::MulAdd(p, r, Simd::Set(6.93136734e-1f));
  p = Simd::MulAdd(p, r, Simd::Set(9.99924557e-1f));
  return Simd::ScaleUnlessBelow(x, smallest, p, k);
}

// Of one number, kExp being Exp or one like it.
template <Simd::F32 (*kExp)(Simd::F32) = Exp>
inline float ExpOfOne(float x) {
  float lanes[Simd::kLanes];
  Simd::Store(lanes, kExp(Simd::Set(x)));
  return lanes[0];
}

}  // namespace
}  // namespace lkv
