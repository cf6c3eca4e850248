// The vector type of the AVX2 set, for the shared row and attention kernels
// (simd_rows.h, simd_attention.h). Everything has internal linkage: a function
// of this file that another object shared would carry AVX2 instructions into a
// program that runs without them.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace lkv {
namespace {

struct Simd {
  using F32 = __m256;
  using I32 = __m256i;
  static constexpr int kLanes = 8;
  // Accumulators that leave room for operands among the 16 registers.
  static constexpr int kMaxSums = 12;
  // Prefill attention: rows by pages that one pass over the dimensions sums.
  static constexpr int kLogitRows = 6;
  static constexpr int kLogitPages = 1;
  // Prefill attention: rows whose output, 4 vectors each, is summed at once.
  static constexpr int kOutputRows = 3;

  static F32 Zero() { return _mm256_setzero_ps(); }
  static F32 Set(float x) { return _mm256_set1_ps(x); }
  static F32 Load(const float* x) { return _mm256_loadu_ps(x); }
  static void Store(float* to, F32 x) { _mm256_storeu_ps(to, x); }
  static F32 Add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
  static F32 Sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
  static F32 Mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
  static F32 Div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
  // The second operand when one of them is NaN.
  static F32 Max(F32 a, F32 b) { return _mm256_max_ps(a, b); }
  static F32 Min(F32 a, F32 b) { return _mm256_min_ps(a, b); }
  static F32 Abs(F32 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  // a * b + c, c - a * b.
  static F32 MulAdd(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
  static F32 NegMulAdd(F32 a, F32 b, F32 c) {
    return _mm256_fnmadd_ps(a, b, c);
  }
  // a * b - c in even lanes, a * b + c in odd ones.
  static F32 MulSubAdd(F32 a, F32 b, F32 c) {
    return _mm256_fmaddsub_ps(a, b, c);
  }
  static float SumOf(F32 x) {
    __m128 sum =
        _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
  }
  static float MaxOf(F32 x) {
    __m128 max =
        _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    max = _mm_max_ps(max, _mm_movehl_ps(max, max));
    return _mm_cvtss_f32(_mm_max_ss(max, _mm_movehdup_ps(max)));
  }
  // Lane i: the sum, maximum or minimum of x[i], i < n <= 8. (Together they
  // take half of the instructions.)
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
  static F32 SwapPairs(F32 x) { return _mm256_permute_ps(x, 0xb1); }
  // kLanes / 2 values, each twice.
  static F32 LoadTwice(const float* x) {
    const __m256i index = _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0);
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(x)),
                                    index);
  }

  static F32 LoadF16(const uint16_t* x) {
    return _mm256_cvtph_ps(LoadHalves(x));
  }
  static void StoreF16(uint16_t* to, F32 x) {
    StoreHalves(to, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  // The next larger f16.
  static void StoreF16Up(uint16_t* to, F32 x) {
    StoreHalves(to, _mm256_cvtps_ph(x, _MM_FROUND_TO_POS_INF));
  }
  static F32 LoadBF16(const uint16_t* x) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadHalves(x)), 16));
  }
  // Rounds to nearest even; NaN stays NaN.
  static void StoreBF16(uint16_t* to, F32 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd =
        _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(
        _mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i is_nan =
        _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    rounded = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const __m256i upper = _mm256_srli_epi32(rounded, 16);
    StoreHalves(to, _mm_packus_epi32(_mm256_castsi256_si128(upper),
                                     _mm256_extracti128_si256(upper, 1)));
  }

  static I32 Round(F32 x) { return _mm256_cvtps_epi32(x); }
  // Integers in [-128, 127] as bytes.
  static void StoreBytes(int8_t* to, I32 x) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x),
                                          _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                     _mm_packs_epi16(words, words));
  }
  // x = 256 * UpperHalf(x) + LowerHalf(x), the latter in [-128, 127].
  static I32 UpperHalf(I32 x) {
    return _mm256_srai_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(128)), 8);
  }
  static I32 LowerHalf(I32 x, I32 upper) {
    return _mm256_sub_epi32(x, _mm256_slli_epi32(upper, 8));
  }
  static int32_t SumOfIntegers(I32 x) {
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(x),
                                _mm256_extracti128_si256(x, 1));
    sum = _mm_add_epi32(sum, _mm_unpackhi_epi64(sum, sum));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 1)));
  }

  // 2 kLanes bytes, sign-extended to words.
  static I32 LoadBytesAsWords(const int8_t* x) {
    return _mm256_cvtepi8_epi16(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
  }
  static I32 ZeroIntegers() { return _mm256_setzero_si256(); }
  // The same two words in every lane.
  static I32 SetPair(const int16_t* pair) {
    int32_t bits;
    __builtin_memcpy(&bits, pair, sizeof(bits));
    return _mm256_set1_epi32(bits);
  }
  // sum + a.even * b.even + a.odd * b.odd, over the words of each lane.
  static I32 DotPairs(I32 sum, I32 a, I32 b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  }
  static F32 FromIntegers(I32 x) { return _mm256_cvtepi32_ps(x); }
  static F32 EvenWords(I32 x) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(x, 16), 16));
  }
  static F32 OddWords(I32 x) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(x, 16));
  }
  // Integers in [-32768, 32767] as words.
  static void StoreWords(int16_t* to, I32 x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm_packs_epi32(_mm256_castsi256_si128(x),
                                     _mm256_extracti128_si256(x, 1)));
  }

  // kLanes integers from anywhere.
  static I32 LoadIntegers(const void* x) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(x));
  }
  static void StoreIntegers(void* to, I32 x) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), x);
  }
  static I32 SetInteger(uint32_t x) {
    return _mm256_set1_epi32(static_cast<int32_t>(x));
  }
  static I32 And(I32 a, I32 b) { return _mm256_and_si256(a, b); }
  static I32 Or(I32 a, I32 b) { return _mm256_or_si256(a, b); }
  // Zeros come in.
  static I32 ShiftRight(I32 x, uint32_t n_bits) {
    return reinterpret_cast<I32>(reinterpret_cast<__v8su>(x) >> n_bits);
  }
  static I32 ShiftLeft(I32 x, uint32_t n_bits) {
    return reinterpret_cast<I32>(reinterpret_cast<__v8su>(x) << n_bits);
  }
  // The same four bytes in every lane.
  static I32 SetBytes(const int8_t* bytes) {
    int32_t four;
    __builtin_memcpy(&four, bytes, sizeof(four));
    return _mm256_set1_epi32(four);
  }
  static F32 FromBits(I32 x) { return _mm256_castsi256_ps(x); }
  static I32 BitsOf(F32 x) { return _mm256_castps_si256(x); }
  // The lowest byte of each.
  static void StoreLowBytes(int8_t* to, I32 x) {
    const __m256i low = _mm256_and_si256(x, _mm256_set1_epi32(0xff));
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(low),
                                          _mm256_extracti128_si256(low, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                     _mm_packus_epi16(words, words));
  }

  // Sums of products of bytes, those of `a` unsigned, by fours: begun with the
  // sum so far, added to by Dot over at most kDotRounds rounds, ended with the
  // sum before. `a` is at most kDotLargest. (Pairs are summed as 16 bits: 8
  // rounds of 2 * 15 * 128 fit.)
  static constexpr uint32_t kDotRounds = 8;
  static constexpr uint32_t kDotLargest = 15;
  static I32 BeginDots(I32 /*sum*/) { return ZeroIntegers(); }
  static I32 Dot(I32 dots, I32 a, I32 b) {
    return _mm256_add_epi16(dots, _mm256_maddubs_epi16(a, b));
  }
  static I32 EndDots(I32 sum, I32 dots) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(dots, _mm256_set1_epi16(1)));
  }

  static F32 RoundToIntegral(F32 x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // mantissa * 2^exponent, exponent integral in [-126, 127]; 0 in lanes where
  // x < smallest.
  static F32 ScaleUnlessBelow(F32 x, F32 smallest, F32 mantissa, F32 exponent) {
    const __m256i power = _mm256_slli_epi32(
        _mm256_add_epi32(_mm256_cvtps_epi32(exponent), _mm256_set1_epi32(127)),
        23);
    return _mm256_and_ps(_mm256_cmp_ps(x, smallest, _CMP_NLT_UQ),
                         _mm256_mul_ps(mantissa, _mm256_castsi256_ps(power)));
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
      return _mm256_blend_ps(high, low, 0xf);
    }
  }
  // The same (0, 1, 2, 3) in each half.
  template <F32 (*kCombine)(F32, F32), int n>
  static F32 ReducedFour(const F32* x) {
    const auto pairs = [&](int i, int j) {
      const F32 a = x[i < n ? i : n - 1];
      const F32 b = x[j < n ? j : n - 1];
      return _mm256_castps_pd(
          kCombine(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)));
    };
    const __m256d first = pairs(0, 1);
    const __m256d second = pairs(2, 3);
    const F32 all =
        kCombine(_mm256_castpd_ps(_mm256_unpacklo_pd(first, second)),
                 _mm256_castpd_ps(_mm256_unpackhi_pd(first, second)));
    return kCombine(all, _mm256_permute2f128_ps(all, all, 1));
  }

  static __m128i LoadHalves(const uint16_t* x) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  }
  static void StoreHalves(uint16_t* to, __m128i x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), x);
  }
};

}  // namespace
}  // namespace lkv
