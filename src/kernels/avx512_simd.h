// The vector type of the AVX-512 set, for the shared row and attention
// kernels (simd_rows.h, simd_attention.h). Everything has internal linkage:
// a function of this file that another object shared would carry AVX-512
// instructions into a program that runs without them.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace lkv {
namespace {

struct Simd {
  using F32 = __m512;
  using I32 = __m512i;
  static constexpr int kLanes = 16;
  // Accumulators that leave room for operands among the 32 registers.
  static constexpr int kMaxSums = 24;
  // Prefill attention: rows by pages that one pass over the dimensions sums.
  static constexpr int kLogitRows = 8;
  static constexpr int kLogitPages = 2;
  // Prefill attention: rows whose output, 4 vectors each, is summed at once.
  static constexpr int kOutputRows = 6;

  static F32 Zero() { return _mm512_setzero_ps(); }
  static F32 Set(float x) { return _mm512_set1_ps(x); }
  static F32 Load(const float* x) { return _mm512_loadu_ps(x); }
  static void Store(float* to, F32 x) { _mm512_storeu_ps(to, x); }
  static F32 Add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
  static F32 Sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
  static F32 Mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
  static F32 Div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
  // The second operand when one of them is NaN.
  static F32 Max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
  static F32 Min(F32 a, F32 b) { return _mm512_min_ps(a, b); }
  static F32 Abs(F32 x) { return _mm512_abs_ps(x); }
  // a * b + c, c - a * b.
  static F32 MulAdd(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
  static F32 NegMulAdd(F32 a, F32 b, F32 c) {
    return _mm512_fnmadd_ps(a, b, c);
  }
  // a * b - c in even lanes, a * b + c in odd ones.
  static F32 MulSubAdd(F32 a, F32 b, F32 c) {
    return _mm512_fmaddsub_ps(a, b, c);
  }
  static float SumOf(F32 x) { return _mm512_reduce_add_ps(x); }
  static float MaxOf(F32 x) { return _mm512_reduce_max_ps(x); }
  // Lane i: the sum, maximum or minimum of x[i], i < n <= 8. (Together they
  // take a third of the instructions.)
  template <int n>
  static F32 SumsOf(const F32* x) {
    return Reduced<Add, n>(x);
  }
  template <int n>
  static F32 MaximaOf(const F32* x) {
    return Reduced<Max, n>(x);
  }
  template <int n>
  static F32 MinimaOf(const F32* x) {
    return Reduced<Min, n>(x);
  }

  // Lanes (0, 1, 2, 3, ...) become (1, 0, 3, 2, ...).
  static F32 SwapPairs(F32 x) { return _mm512_permute_ps(x, 0xb1); }
  // kLanes / 2 values, each twice.
  static F32 LoadTwice(const float* x) {
    const __m512i index =
        _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return _mm512_permutexvar_ps(index,
                                 _mm512_castps256_ps512(_mm256_loadu_ps(x)));
  }

  static F32 LoadF16(const uint16_t* x) {
    return _mm512_cvtph_ps(LoadHalves(x));
  }
  static void StoreF16(uint16_t* to, F32 x) {
    StoreHalves(
        to, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // The next larger f16.
  static void StoreF16Up(uint16_t* to, F32 x) {
    StoreHalves(to,
                _mm512_cvtps_ph(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC));
  }
  static F32 LoadBF16(const uint16_t* x) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadHalves(x)), 16));
  }
  // Rounds to nearest even; NaN stays NaN.
  static void StoreBF16(uint16_t* to, F32 x) {
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd =
        _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(
        _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, is_nan, bits,
                                   _mm512_set1_epi32(0x400000));
    StoreHalves(to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }

  static I32 Round(F32 x) { return _mm512_cvtps_epi32(x); }
  // Integers in [-128, 127] as bytes.
  static void StoreBytes(int8_t* to, I32 x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x));
  }
  // x = 256 * UpperHalf(x) + LowerHalf(x), the latter in [-128, 127].
  static I32 UpperHalf(I32 x) {
    return _mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(128)), 8);
  }
  static I32 LowerHalf(I32 x, I32 upper) {
    return _mm512_sub_epi32(x, _mm512_slli_epi32(upper, 8));
  }
  static int32_t SumOfIntegers(I32 x) { return _mm512_reduce_add_epi32(x); }

  // 2 kLanes bytes, sign-extended to words.
  static I32 LoadBytesAsWords(const int8_t* x) {
    return _mm512_cvtepi8_epi16(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  }
  static I32 ZeroIntegers() { return _mm512_setzero_si512(); }
  // The same two words in every lane.
  static I32 SetPair(const int16_t* pair) {
    int32_t bits;
    __builtin_memcpy(&bits, pair, sizeof(bits));
    return _mm512_set1_epi32(bits);
  }
  // sum + a.even * b.even + a.odd * b.odd, over the words of each lane.
  static I32 DotPairs(I32 sum, I32 a, I32 b) {
    return _mm512_dpwssd_epi32(sum, a, b);
  }
  static F32 FromIntegers(I32 x) { return _mm512_cvtepi32_ps(x); }
  static F32 EvenWords(I32 x) {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(x, 16), 16));
  }
  static F32 OddWords(I32 x) {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(x, 16));
  }
  // Integers in [-32768, 32767] as words.
  static void StoreWords(int16_t* to, I32 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtepi32_epi16(x));
  }

  // kLanes integers from anywhere.
  static I32 LoadIntegers(const void* x) { return _mm512_loadu_si512(x); }
  static void StoreIntegers(void* to, I32 x) { _mm512_storeu_si512(to, x); }
  static I32 SetInteger(uint32_t x) {
    return _mm512_set1_epi32(static_cast<int32_t>(x));
  }
  static I32 And(I32 a, I32 b) { return _mm512_and_si512(a, b); }
  static I32 Or(I32 a, I32 b) { return _mm512_or_si512(a, b); }
  // Zeros come in.
  static I32 ShiftRight(I32 x, uint32_t n_bits) {
    return reinterpret_cast<I32>(reinterpret_cast<__v16su>(x) >> n_bits);
  }
  static I32 ShiftLeft(I32 x, uint32_t n_bits) {
    return reinterpret_cast<I32>(reinterpret_cast<__v16su>(x) << n_bits);
  }
  // The same four bytes in every lane.
  static I32 SetBytes(const int8_t* bytes) {
    int32_t four;
    __builtin_memcpy(&four, bytes, sizeof(four));
    return _mm512_set1_epi32(four);
  }
  static F32 FromBits(I32 x) { return _mm512_castsi512_ps(x); }
  static I32 BitsOf(F32 x) { return _mm512_castps_si512(x); }
  // The lowest byte of each.
  static void StoreLowBytes(int8_t* to, I32 x) { StoreBytes(to, x); }

  // Sums of products of bytes, those of `a` unsigned, by fours: begun with the
  // sum so far, added to by Dot over at most kDotRounds rounds, ended with the
  // sum before. `a` is at most kDotLargest.
  static constexpr uint32_t kDotRounds = 64;
  static constexpr uint32_t kDotLargest = 255;
  static I32 BeginDots(I32 sum) { return sum; }
  static I32 Dot(I32 dots, I32 a, I32 b) {
    return _mm512_dpbusd_epi32(dots, a, b);
  }
  static I32 EndDots(I32 /*sum*/, I32 dots) { return dots; }

  static F32 RoundToIntegral(F32 x) {
    return _mm512_roundscale_ps(x,
                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // mantissa * 2^exponent, exponent integral in [-126, 127]; 0 in lanes where
  // x < smallest.
  static F32 ScaleUnlessBelow(F32 x, F32 smallest, F32 mantissa, F32 exponent) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, smallest, _CMP_NLT_UQ),
                                  mantissa, exponent);
  }

 private:
  template <F32 (*kCombine)(F32, F32), int n>
  static F32 Reduced(const F32* x) {
    static_assert(n <= 8);
    const F32 low = ReducedFour<kCombine, (n < 4 ? n : 4)>(x);
    if constexpr (n <= 4) {
      return low;
    } else {
      const F32 high = ReducedFour<kCombine, n - 4>(x + 4);
      return _mm512_mask_mov_ps(high, 0xf, low);
    }
  }
  // The same (0, 1, 2, 3) in each quarter.
  template <F32 (*kCombine)(F32, F32), int n>
  static F32 ReducedFour(const F32* x) {
    const auto pairs = [&](int i, int j) {
      const F32 a = x[i < n ? i : n - 1];
      const F32 b = x[j < n ? j : n - 1];
      return _mm512_castps_pd(
          kCombine(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
    };
    const __m512d first = pairs(0, 1);
    const __m512d second = pairs(2, 3);
    F32 all = kCombine(_mm512_castpd_ps(_mm512_unpacklo_pd(first, second)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(first, second)));
    all = kCombine(all, _mm512_shuffle_f32x4(all, all, 0x4e));
    return kCombine(all, _mm512_shuffle_f32x4(all, all, 0xb1));
  }

  static __m256i LoadHalves(const uint16_t* x) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  }
  static void StoreHalves(uint16_t* to, __m256i x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
  }
};

}  // namespace
}  // namespace lkv
