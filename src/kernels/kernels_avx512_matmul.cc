// Matrix products with AVX-512 VNNI.
//
// One register holds one value of each of a tile's 16 rows, so nothing is ever
// added across lanes. A block of up to 8 tokens shares each load of weights.
// For every (token, row) the arithmetic is the same whatever the block is, so
// a token's result does not depend on which tokens came along: strict mode
// rests on it.
//
// One token is bound by memory: tiles are prefetched, on into what is read
// after them, which no hardware prefetcher could know. Many tokens are bound by
// the dot-product unit: 8 of its operations per tile and token.
#include <immintrin.h>

#include "kernels/avx512_simd.h"
#include "kernels/kernel_sets.h"
#include "kernels/simd_matmul.h"

namespace lkv {
namespace {

// Four columns of x for all 16 rows.
inline __m512i Broadcast4(const int8_t* x) {
  int32_t columns;
  __builtin_memcpy(&columns, x, sizeof(columns));
  return _mm512_set1_epi32(columns);
}

// How far ahead, and into which cache: the first where the arithmetic of a tile
// takes longer than its bytes; where it does not, the second, because the first
// level's miss registers would bound the stream. Share of a streaming read on
// Zen 4, one thread, 3 KiB into the first, into the second, 6 KiB into the
// first: tile4 0.81, 0.60 and 0.94; tile8 0.68, 0.86 and 0.70; tile8 with
// 16-bit activations 0.70, 0.59 and 0.68.
template <typename Tile, bool kHasLow>
inline void PrefetchAhead(const Tile* tile, const ReadAhead& read) {
  constexpr bool kIsTile4 = sizeof(Tile) == sizeof(Tile4);
  const char* ahead = read.Address(tile, kIsTile4 ? 6144 : 3072);
  for (size_t i = 0; i < sizeof(Tile); i += 64) {
    if constexpr (kIsTile4 || kHasLow) {
      _mm_prefetch(ahead + i, _MM_HINT_T0);
    } else {
      _mm_prefetch(ahead + i, _MM_HINT_T1);
    }
  }
}

// Dot products of unsigned bytes with one token's quants, columns
// [4 begin, 4 end), exact in int32: with 16-bit activations at most
// 32 * 255 * 32639 = 2.7e8.
template <bool kHasLow, int kBegin, int kEnd>
inline __m512i DotBytes(const __m512i* bytes, const TokenBlock& x) {
  __m512i sum = _mm512_setzero_si512();
  for (int j = kBegin; j < kEnd; ++j) {
    sum = _mm512_dpbusd_epi32(sum, bytes[j], Broadcast4(x.high + 4 * j));
  }
  if constexpr (kHasLow) {
    sum = _mm512_slli_epi32(sum, 8);  // 256 * high
    for (int j = kBegin; j < kEnd; ++j) {
      sum = _mm512_dpbusd_epi32(sum, bytes[j], Broadcast4(x.low + 4 * j));
    }
  }
  return sum;
}

// A tile format is a struct that loads a tile once (constructor) and adds its
// product with one token to 16 sums.

struct Unpacked4 {
  explicit Unpacked4(const Tile4& tile)
      : scale(Simd::LoadF16(tile.scale)), minimum(Simd::LoadF16(tile.minimum)) {
    const __m512i low_half = _mm512_set1_epi8(15);
    for (int j = 0; j < 4; ++j) {
      __m512i pairs = _mm512_loadu_si512(tile.quants[j]);
      bytes[j] = _mm512_and_si512(pairs, low_half);
      bytes[4 + j] = _mm512_and_si512(_mm512_srli_epi16(pairs, 4), low_half);
    }
  }

  template <bool kHasLow>
  __m512 AddProduct(const TokenBlock& x, __m512 sum) const {
    __m512 dot = _mm512_cvtepi32_ps(DotBytes<kHasLow, 0, 8>(bytes, x));
    sum = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x.sums[0] + x.sums[1]), sum);
    return _mm512_fmadd_ps(dot, _mm512_mul_ps(scale, _mm512_set1_ps(x.scale)),
                           sum);
  }

  __m512i bytes[8];
  __m512 scale;
  __m512 minimum;
};

// sum (u - 128) x = sum u x - 128 sum x.
template <bool kHasLow, int kBegin, int kEnd>
inline __m512 OffsetDot(const __m512i* bytes, const TokenBlock& x,
                        float sum_of_x) {
  __m512 dot = _mm512_cvtepi32_ps(DotBytes<kHasLow, kBegin, kEnd>(bytes, x));
  return _mm512_fmsub_ps(dot, _mm512_set1_ps(x.scale),
                         _mm512_set1_ps(128.0f * sum_of_x));
}

struct Unpacked8 {
  explicit Unpacked8(const Tile8& tile) : scale(Simd::LoadF16(tile.scale)) {
    for (int j = 0; j < 8; ++j) bytes[j] = _mm512_loadu_si512(tile.quants[j]);
  }

  template <bool kHasLow>
  __m512 AddProduct(const TokenBlock& x, __m512 sum) const {
    return _mm512_fmadd_ps(
        OffsetDot<kHasLow, 0, 8>(bytes, x, x.sums[0] + x.sums[1]), scale, sum);
  }

  __m512i bytes[8];
  __m512 scale;
};

struct Unpacked8x16 {
  explicit Unpacked8x16(const Tile8x16& tile)
      : scale{Simd::LoadF16(tile.scale[0]), Simd::LoadF16(tile.scale[1])} {
    for (int j = 0; j < 8; ++j) bytes[j] = _mm512_loadu_si512(tile.quants[j]);
  }

  template <bool kHasLow>
  __m512 AddProduct(const TokenBlock& x, __m512 sum) const {
    sum = _mm512_fmadd_ps(OffsetDot<kHasLow, 0, 4>(bytes, x, x.sums[0]),
                          scale[0], sum);
    return _mm512_fmadd_ps(OffsetDot<kHasLow, 4, 8>(bytes, x, x.sums[1]),
                           scale[1], sum);
  }

  __m512i bytes[8];
  __m512 scale[2];
};

// 16 rows times kTokens tokens, from token t on.
template <typename Tile, typename Unpacked, bool kHasLow, int kTokens>
inline void QuantizedRowTile(const MatmulArgs& args, const Tile* tiles,
                             size_t t, float* y) {
  __m512 sums[kTokens];
  for (int i = 0; i < kTokens; ++i) sums[i] = _mm512_setzero_ps();
  const ReadAhead read = ReadAhead::Of<Tile>(args);
  for (size_t b = 0; b < args.n_column_tiles; ++b) {
    if constexpr (kTokens == 1) {
      PrefetchAhead<Tile, kHasLow>(&tiles[b], read);
    }
    const Unpacked weights(tiles[b]);
    for (int i = 0; i < kTokens; ++i) {
      sums[i] = weights.template AddProduct<kHasLow>(
          BlockOf<kHasLow>(args.quantized, t + i, b), sums[i]);
    }
  }
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
    if constexpr (kTokens == 1) PrefetchAhead<Tile16, false>(&tiles[b], read);
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
template <typename TileType, typename Unpacked, bool kHasLow>
struct QuantizedKernel {
  using Tile = TileType;
  template <int kTokens>
  static void Run(const MatmulArgs& args, const Tile* tiles, size_t t,
                  float* y) {
    QuantizedRowTile<Tile, Unpacked, kHasLow, kTokens>(args, tiles, t, y);
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

template <typename Tile, typename Unpacked>
void QuantizedMatmul(const MatmulArgs& args) {
  if (args.quantized.low != nullptr) {
    ForAllTokens<QuantizedKernel<Tile, Unpacked, true>>(args);
  } else {
    ForAllTokens<QuantizedKernel<Tile, Unpacked, false>>(args);
  }
}

}  // namespace

void AddAvx512Matmul(KernelTable* table) {
  table->matmul[static_cast<size_t>(WeightFormat::kTile4)] =
      QuantizedMatmul<Tile4, Unpacked4>;
  table->matmul[static_cast<size_t>(WeightFormat::kTile8)] =
      QuantizedMatmul<Tile8, Unpacked8>;
  table->matmul[static_cast<size_t>(WeightFormat::kTile8x16)] =
      QuantizedMatmul<Tile8x16, Unpacked8x16>;
  table->matmul[static_cast<size_t>(WeightFormat::kTile16F16)] =
      ForAllTokens<HalfKernel<Simd::LoadF16>>;
  table->matmul[static_cast<size_t>(WeightFormat::kTile16BF16)] =
      ForAllTokens<HalfKernel<Simd::LoadBF16>>;
}

}  // namespace lkv
