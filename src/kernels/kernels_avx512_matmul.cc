// Matrix products with AVX-512 VNNI.
//
// One register holds one value of each of a tile's 16 rows, so nothing is ever
// added across lanes. A block of up to 8 tokens shares each load of weights.
// For every (token, row) the arithmetic is the same whatever the block is, so
// a token's result does not depend on which tokens came along: strict mode
// rests on it.
//
// One token is bound by memory: tiles are prefetched, on into what is read
// after them, which no hardware prefetcher could know. So they are for the
// first block of several tokens; the others find them in the cache (a step of 8
// sequences with nothing cached, two threads of Zen 4: 7.6 ms instead of 9.7).
//
// Many tokens are bound by the two pipes that multiply, together one operation
// a cycle on Zen 4. With 8-bit activations a tile and a token need 8 dot
// products there, and multiplications of floats: 3 of tile4, 2 of tile8, 4 of
// tile8x16. Of the 470 GFLOP/s of the dot products alone, at 3.7 GHz, that
// leaves 343, 378 and 315; measured are 330, 355 and 295, one thread, 256
// tokens. Sums, conversions and shifts run beside them, on the two pipes that
// add. Several rows of tiles at a time would save loads only, and those take
// half the cycles.
#include <immintrin.h>

#include "kernels/avx512_simd.h"
#include "kernels/kernel_sets.h"
#include "kernels/simd_matmul.h"

namespace lkv {
namespace {

// How far ahead, and into which cache. The miss registers of the first level
// bound the stream, so that it is the second where bytes are many for the
// arithmetic; 4 bits are few. Share of a streaming read on Zen 4, one thread,
// with 8-bit and 16-bit activations, 6 KiB into the first against 2 KiB into
// the second: tile4 0.95 and 0.91 against 0.96 and 0.83; tile8 0.75 and 0.69
// against 0.91 and 0.95; tile8x16 0.64 and 0.67 against 0.85 and 0.93; tile16
// 0.82 against 0.98.
template <typename Tile>
inline void PrefetchAhead(const Tile* tile, const ReadAhead& read) {
  constexpr bool kIsTile4 = sizeof(Tile) == sizeof(Tile4);
  const char* ahead = read.Address(tile, kIsTile4 ? 6144 : 2048);
  for (size_t i = 0; i < sizeof(Tile); i += 64) {
    if constexpr (kIsTile4) {
      _mm_prefetch(ahead + i, _MM_HINT_T0);
    } else {
      _mm_prefetch(ahead + i, _MM_HINT_T1);
    }
  }
  // Before the tile's own loads: scattered among them by the compiler, tile8
  // reads at 0.86 instead of 0.91 and 0.95.
  asm volatile("" ::: "memory");
}

// What assembly may read behind a pointer, for the compiler to know: any number
// of elements would do.
template <typename T>
using WholeRows = T[1 << 24];

// Quantised activations of a block of tokens, at one tile of 32 columns.
//
// offset[i]: how far, in bytes, the scales of token i lie behind those of the
// first. Its sums lie twice and its quants 8 times as far, so that one register
// for each token addresses all three, and the loop over tiles spills none. What
// reads sums and quants is written in assembly for that: GCC 12 makes pointers
// of its own, spills them, and does not let a dot product broadcast its
// operand: prefill 7 % slower with tile4, 11 % with tile8.
template <bool kHasLow, int kTokens>
struct TokensAt {
  TokensAt(const QuantizedRows& x, size_t t)
      : high(x.high + t * x.stride),
        low(kHasLow ? x.low + t * x.stride : nullptr),
        scale(x.scale + t * (x.stride / 32)),
        sums(x.sums + t * (x.stride / 16)) {
#pragma GCC unroll 8
    for (int i = 0; i < kTokens; ++i) {
      offset[i] = i * (x.stride / 32) * sizeof(float);
      asm("" : "+r"(offset[i]));  // in a register, not computed at each use
    }
  }

  void GoToNextTile() {
    high += kTileColumns;
    if constexpr (kHasLow) low += kTileColumns;
    scale += 1;
    sums += 2;
  }

  // Token i's, for all 16 rows. kHalf: of columns [16 kHalf, 16 kHalf + 16).
  __m512 Scale(int i) const {
    const char* at = reinterpret_cast<const char*>(scale) + offset[i];
    return _mm512_set1_ps(*reinterpret_cast<const float*>(at));
  }
  template <int kHalf>
  __m512 Sum(int i) const {
    __m512 sum;
    // volatile: GCC would move these loads up among the dot products and copy
    // registers to make room, 4 % of tile8x16.
    asm volatile("vbroadcastss %c[at](%[sums],%[offset],2), %[sum]"
                 : [sum] "=v"(sum)
                 : [sums] "r"(sums), [offset] "r"(offset[i]),
                   [at] "i"(kHalf * sizeof(float)),
                   "m"(*reinterpret_cast<const WholeRows<float>*>(sums)));
    return sum;
  }
  __m512 Sum(int i) const { return _mm512_add_ps(Sum<0>(i), Sum<1>(i)); }

  const int8_t* high;
  const int8_t* low;
  const float* scale;
  const float* sums;
  size_t offset[kTokens];
};

// sum + the dot products of four unsigned bytes of each row with the four
// columns that lie kAt bytes after x + 8 * offset.
template <int kAt>
inline __m512i AddDot(__m512i sum, __m512i bytes, const int8_t* x,
                      size_t offset) {
  asm("vpdpbusd %c[at](%[x],%[offset],8)%{1to16%}, %[bytes], %[sum]"
      : [sum] "+v"(sum)
      : [bytes] "v"(bytes), [x] "r"(x), [offset] "r"(offset), [at] "i"(kAt),
        "m"(*reinterpret_cast<const WholeRows<int8_t>*>(x)));
  return sum;
}

// Columns [4 j, 4 j + 4) of a tile as unsigned bytes.
inline __m512i Bytes(const Tile4& tile, int j) {
  __m512i pairs = _mm512_loadu_si512(tile.quants[j % 4]);
  if (j >= 4) pairs = _mm512_srli_epi16(pairs, 4);
  return _mm512_and_si512(pairs, _mm512_set1_epi8(15));
}
inline __m512i Bytes(const Tile8& tile, int j) {
  return _mm512_loadu_si512(tile.quants[j]);
}
inline __m512i Bytes(const Tile8x16& tile, int j) {
  return _mm512_loadu_si512(tile.quants[j]);
}

// high[i], low[i] += the dot products of the tile's bytes with token i's high
// and low quants, columns [4 j, 4 kEnd). All tokens take a step before any
// takes the next: their chains of dependent operations run side by side.
template <int j, int kEnd, typename Tile, bool kHasLow, int kTokens>
inline void AddDots(const Tile& tile, const TokensAt<kHasLow, kTokens>& x,
                    __m512i* high, __m512i* low) {
  const __m512i bytes = Bytes(tile, j);
#pragma GCC unroll 8
  for (int i = 0; i < kTokens; ++i) {
    high[i] = AddDot<4 * j>(high[i], bytes, x.high, x.offset[i]);
    if constexpr (kHasLow) {
      low[i] = AddDot<4 * j>(low[i], bytes, x.low, x.offset[i]);
    }
  }
  if constexpr (j + 1 < kEnd) AddDots<j + 1, kEnd>(tile, x, high, low);
}

// Dot products of the tile's unsigned bytes with each token's quants, columns
// [4 kBegin, 4 kEnd), exact in int32: with 16-bit activations at most
// 32 * 255 * 32639 = 2.7e8.
template <int kBegin, int kEnd, typename Tile, bool kHasLow, int kTokens>
inline void DotBytes(const Tile& tile, const TokensAt<kHasLow, kTokens>& x,
                     __m512i* dots) {
  __m512i low[kTokens];
#pragma GCC unroll 8
  for (int i = 0; i < kTokens; ++i) {
    dots[i] = _mm512_setzero_si512();
    low[i] = _mm512_setzero_si512();
  }
  AddDots<kBegin, kEnd>(tile, x, dots, low);
  if constexpr (kHasLow) {
#pragma GCC unroll 8
    for (int i = 0; i < kTokens; ++i) {
      dots[i] = _mm512_add_epi32(_mm512_slli_epi32(dots[i], 8), low[i]);
    }
  }
}

// AddProducts: sums[i] += the tile's product with token i.

template <bool kHasLow, int kTokens>
inline void AddProducts(const Tile4& tile, const TokensAt<kHasLow, kTokens>& x,
                        __m512* sums) {
  const __m512 scale = Simd::LoadF16(tile.scale);
  const __m512 minimum = Simd::LoadF16(tile.minimum);
  __m512i dots[kTokens];
  DotBytes<0, 8>(tile, x, dots);
#pragma GCC unroll 8
  for (int i = 0; i < kTokens; ++i) {
    sums[i] = _mm512_fmadd_ps(minimum, x.Sum(i), sums[i]);
    sums[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i]),
                              _mm512_mul_ps(scale, x.Scale(i)), sums[i]);
  }
}

// sum (u - 128) x = sum u x - 128 sum x. The factor is applied to the exponent,
// 2^7, because the pipes that add do that.
inline __m512 OffsetDot(__m512i dot, __m512 scale_of_x, __m512 sum_of_x) {
  return _mm512_fmsub_ps(_mm512_cvtepi32_ps(dot), scale_of_x,
                         _mm512_scalef_ps(sum_of_x, _mm512_set1_ps(7.0f)));
}

template <bool kHasLow, int kTokens>
inline void AddProducts(const Tile8& tile, const TokensAt<kHasLow, kTokens>& x,
                        __m512* sums) {
  const __m512 scale = Simd::LoadF16(tile.scale);
  __m512i dots[kTokens];
  DotBytes<0, 8>(tile, x, dots);
#pragma GCC unroll 8
  for (int i = 0; i < kTokens; ++i) {
    sums[i] = _mm512_fmadd_ps(OffsetDot(dots[i], x.Scale(i), x.Sum(i)), scale,
                              sums[i]);
  }
}

template <int kHalf, bool kHasLow, int kTokens>
inline void AddHalfProducts(const Tile8x16& tile,
                            const TokensAt<kHasLow, kTokens>& x, __m512* sums) {
  const __m512 scale = Simd::LoadF16(tile.scale[kHalf]);
  __m512i dots[kTokens];
  DotBytes<4 * kHalf, 4 * kHalf + 4>(tile, x, dots);
#pragma GCC unroll 8
  for (int i = 0; i < kTokens; ++i) {
    sums[i] = _mm512_fmadd_ps(
        OffsetDot(dots[i], x.Scale(i), x.template Sum<kHalf>(i)), scale,
        sums[i]);
  }
}

template <bool kHasLow, int kTokens>
inline void AddProducts(const Tile8x16& tile,
                        const TokensAt<kHasLow, kTokens>& x, __m512* sums) {
  AddHalfProducts<0>(tile, x, sums);
  AddHalfProducts<1>(tile, x, sums);
}

// 16 rows times kTokens tokens, from token t on. Loops over tokens are unrolled
// by request: else GCC 12 sets `sums` to zero in memory, by `rep stos`, and 576
// columns take 2 % longer.
template <typename Tile, bool kHasLow, int kTokens>
inline void QuantizedRowTile(const MatmulArgs& args, const Tile* tiles,
                             size_t t, float* y) {
  __m512 sums[kTokens];
#pragma GCC unroll 8
  for (int i = 0; i < kTokens; ++i) sums[i] = _mm512_setzero_ps();
  const ReadAhead read = ReadAhead::Of<Tile>(args);
  TokensAt<kHasLow, kTokens> x(args.quantized, t);
  for (size_t b = 0; b < args.n_column_tiles; ++b) {
    if (kTokens == 1 || t == 0) PrefetchAhead(&tiles[b], read);
    AddProducts(tiles[b], x, sums);
    x.GoToNextTile();
  }
#pragma GCC unroll 8
  for (int i = 0; i < kTokens; ++i) {
    _mm512_storeu_ps(y + i * args.y_stride, sums[i]);
  }
}

// The same in f32. Even and odd columns are summed apart: one chain of
// dependent additions would be slower than memory.
template <__m512 (*Load)(const uint16_t*), int kTokens>
inline void HalfRowTile(const MatmulArgs& args, const Tile16* tiles, size_t t,
                        float* y) {
  __m512 even[kTokens];
  __m512 odd[kTokens];
  for (int i = 0; i < kTokens; ++i) {
    even[i] = _mm512_setzero_ps();
    odd[i] = _mm512_setzero_ps();
  }
  const ReadAhead read = ReadAhead::Of<Tile16>(args);
  const float* x = args.x + t * args.x_stride;
  for (size_t b = 0; b < args.n_column_tiles; ++b, x += kTileColumns) {
    if (kTokens == 1 || t == 0) PrefetchAhead(&tiles[b], read);
    for (uint32_t c = 0; c < kTileColumns; c += 2) {
      __m512 w0 = Load(tiles[b].values[c]);
      __m512 w1 = Load(tiles[b].values[c + 1]);
      for (int i = 0; i < kTokens; ++i) {
        const float* columns = x + i * args.x_stride + c;
        even[i] = _mm512_fmadd_ps(w0, _mm512_set1_ps(columns[0]), even[i]);
        odd[i] = _mm512_fmadd_ps(w1, _mm512_set1_ps(columns[1]), odd[i]);
      }
    }
  }
  for (int i = 0; i < kTokens; ++i) {
    _mm512_storeu_ps(y + i * args.y_stride, _mm512_add_ps(even[i], odd[i]));
  }
}

// Row kernels by number of tokens: Kernel::Run<kTokens>.
template <typename TileType, bool kHasLow>
struct QuantizedKernel {
  using Tile = TileType;
  template <int kTokens>
  static void Run(const MatmulArgs& args, const Tile* tiles, size_t t,
                  float* y) {
    QuantizedRowTile<Tile, kHasLow, kTokens>(args, tiles, t, y);
  }
};

template <__m512 (*Load)(const uint16_t*)>
struct HalfKernel {
  using Tile = Tile16;
  template <int kTokens>
  static void Run(const MatmulArgs& args, const Tile* tiles, size_t t,
                  float* y) {
    HalfRowTile<Load, kTokens>(args, tiles, t, y);
  }
};

// A row of tiles stays in the first-level cache while all tokens pass by.
template <typename Kernel>
void ForAllTokens(const MatmulArgs& args) {
  for (size_t i = args.row_tile_begin; i < args.row_tile_end; ++i) {
    const auto* tiles = static_cast<const typename Kernel::Tile*>(args.tiles) +
                        i * args.n_column_tiles;
    float* y = args.y + i * kTileRows;
    size_t t = 0;
    for (; t + 8 <= args.n_tokens; t += 8) {
      Kernel::template Run<8>(args, tiles, t, y + t * args.y_stride);
    }
    for (; t + 4 <= args.n_tokens; t += 4) {
      Kernel::template Run<4>(args, tiles, t, y + t * args.y_stride);
    }
    for (; t + 2 <= args.n_tokens; t += 2) {
      Kernel::template Run<2>(args, tiles, t, y + t * args.y_stride);
    }
    for (; t < args.n_tokens; ++t) {
      Kernel::template Run<1>(args, tiles, t, y + t * args.y_stride);
    }
  }
}

template <typename Tile>
void QuantizedMatmul(const MatmulArgs& args) {
  if (args.quantized.low != nullptr) {
    ForAllTokens<QuantizedKernel<Tile, true>>(args);
  } else {
    ForAllTokens<QuantizedKernel<Tile, false>>(args);
  }
}

}  // namespace

void AddAvx512Matmul(KernelTable* table) {
  table->matmul[static_cast<size_t>(WeightFormat::kTile4)] =
      QuantizedMatmul<Tile4>;
  table->matmul[static_cast<size_t>(WeightFormat::kTile8)] =
      QuantizedMatmul<Tile8>;
  table->matmul[static_cast<size_t>(WeightFormat::kTile8x16)] =
      QuantizedMatmul<Tile8x16>;
  table->matmul[static_cast<size_t>(WeightFormat::kTile16F16)] =
      ForAllTokens<HalfKernel<Simd::LoadF16>>;
  table->matmul[static_cast<size_t>(WeightFormat::kTile16BF16)] =
      ForAllTokens<HalfKernel<Simd::LoadBF16>>;
}

}  // namespace lkv
