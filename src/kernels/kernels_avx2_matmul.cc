// Matrix products with AVX2.
//
// Registers hold 8 of a tile's 16 rows, so a tile is two halves; the rest is
// as in kernels_avx512_matmul.cc. The dot-product instruction of AVX2
// multiplies unsigned by signed bytes into 16-bit pairs that saturate, so every
// weight is taken as nibbles: 8 times 2 * 15 * 128 = 30720 stays below 32767,
// whatever the activations are. An 8-bit weight is 16 * upper + lower nibble.
#include <immintrin.h>

#include "kernels/avx2_simd.h"
#include "kernels/kernel_sets.h"
#include "kernels/simd_matmul.h"

namespace lkv {
namespace {

constexpr size_t kPrefetchBytes = 3072;
constexpr int kHalfRows = 8;

// Quantised activations of one token, at one tile of 32 columns.
struct TokenBlock {
  const int8_t* high;
  const int8_t* low;
  float scale;
  const float* sums;  // two, 16 columns each
};

template <bool kHasLow>
inline TokenBlock BlockOf(const QuantizedRows& x, size_t t, size_t b) {
  const size_t column = t * x.stride + b * kTileColumns;
  return {x.high + column, kHasLow ? x.low + column : nullptr,
          x.scale[column / 32], x.sums + column / 16};
}

// Four columns of x for all 8 rows.
inline __m256i Broadcast4(const int8_t* x) {
  int32_t columns;
  __builtin_memcpy(&columns, x, sizeof(columns));
  return _mm256_set1_epi32(columns);
}

inline __m256i LoadBytes(const uint8_t* bytes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

inline __m256i LowNibbles(__m256i bytes) {
  return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}

inline __m256i HighNibbles(__m256i bytes) {
  return LowNibbles(_mm256_srli_epi16(bytes, 4));
}

template <typename Tile>
inline void PrefetchAhead(const Tile* tile, const ReadAhead& read) {
  const char* ahead = read.Address(tile, kPrefetchBytes);
  for (size_t i = 0; i < sizeof(Tile); i += 64) {
    _mm_prefetch(ahead + i, _MM_HINT_T0);
  }
}

// Adds pairs of 16-bit sums: one 32-bit sum per row.
inline __m256i AddPairs(__m256i pairs) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// Rows 8 half .. 8 half + 7 of a tile, columns [4 begin, 4 end), times one
// half (high or low) of the activations. Exact.
inline __m256i Dot(const Tile4& tile, int half, const int8_t* x) {
  __m256i pairs = _mm256_setzero_si256();
  for (int j = 0; j < 4; ++j) {
    const __m256i bytes = LoadBytes(tile.quants[j] + 32 * half);
    pairs = _mm256_add_epi16(
        pairs, _mm256_maddubs_epi16(LowNibbles(bytes), Broadcast4(x + 4 * j)));
    pairs = _mm256_add_epi16(
        pairs,
        _mm256_maddubs_epi16(HighNibbles(bytes), Broadcast4(x + 16 + 4 * j)));
  }
  return AddPairs(pairs);
}

template <int kBegin, int kEnd>
inline __m256i Dot(const uint8_t (*quants)[64], int half, const int8_t* x) {
  __m256i lower = _mm256_setzero_si256();
  __m256i upper = _mm256_setzero_si256();
  for (int j = kBegin; j < kEnd; ++j) {
    const __m256i bytes = LoadBytes(quants[j] + 32 * half);
    const __m256i columns = Broadcast4(x + 4 * j);
    lower = _mm256_add_epi16(lower,
                             _mm256_maddubs_epi16(LowNibbles(bytes), columns));
    upper = _mm256_add_epi16(upper,
                             _mm256_maddubs_epi16(HighNibbles(bytes), columns));
  }
  return _mm256_add_epi32(_mm256_slli_epi32(AddPairs(upper), 4),
                          AddPairs(lower));
}

// 256 * high + low, exact in int32: at most 32 * 255 * 32639 = 2.7e8.
inline __m256i Combine(__m256i high, __m256i low) {
  return _mm256_add_epi32(_mm256_slli_epi32(high, 8), low);
}

// Adds a half tile's product with one token to 8 sums.
template <bool kHasLow>
inline __m256 AddProduct(const Tile4& tile, int half, const TokenBlock& x,
                         __m256 sum) {
  __m256i dot = Dot(tile, half, x.high);
  if constexpr (kHasLow) dot = Combine(dot, Dot(tile, half, x.low));
  const __m256 scale = Simd::LoadF16(tile.scale + kHalfRows * half);
  const __m256 minimum = Simd::LoadF16(tile.minimum + kHalfRows * half);
  sum = _mm256_fmadd_ps(minimum, _mm256_set1_ps(x.sums[0] + x.sums[1]), sum);
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot),
                         _mm256_mul_ps(scale, _mm256_set1_ps(x.scale)), sum);
}

// sum (u - 128) x = sum u x - 128 sum x.
template <bool kHasLow, int kBegin, int kEnd>
inline __m256 OffsetDot(const uint8_t (*quants)[64], int half,
                        const TokenBlock& x, float sum_of_x) {
  __m256i dot = Dot<kBegin, kEnd>(quants, half, x.high);
  if constexpr (kHasLow) {
    dot = Combine(dot, Dot<kBegin, kEnd>(quants, half, x.low));
  }
  return _mm256_fmsub_ps(_mm256_cvtepi32_ps(dot), _mm256_set1_ps(x.scale),
                         _mm256_set1_ps(128.0f * sum_of_x));
}

template <bool kHasLow>
inline __m256 AddProduct(const Tile8& tile, int half, const TokenBlock& x,
                         __m256 sum) {
  const __m256 dot =
      OffsetDot<kHasLow, 0, 8>(tile.quants, half, x, x.sums[0] + x.sums[1]);
  return _mm256_fmadd_ps(dot, Simd::LoadF16(tile.scale + kHalfRows * half),
                         sum);
}

template <bool kHasLow>
inline __m256 AddProduct(const Tile8x16& tile, int half, const TokenBlock& x,
                         __m256 sum) {
  const __m256 left = OffsetDot<kHasLow, 0, 4>(tile.quants, half, x, x.sums[0]);
  const __m256 right =
      OffsetDot<kHasLow, 4, 8>(tile.quants, half, x, x.sums[1]);
  sum = _mm256_fmadd_ps(left, Simd::LoadF16(tile.scale[0] + kHalfRows * half),
                        sum);
  return _mm256_fmadd_ps(right, Simd::LoadF16(tile.scale[1] + kHalfRows * half),
                         sum);
}

// 16 rows times kTokens tokens, from token t on. Decode takes both halves in
// one pass over memory, prefill one after the other for want of registers.
template <typename Tile, bool kHasLow, int kTokens, int kHalves>
inline void QuantizedRowTile(const MatmulArgs& args, const Tile* tiles,
                             size_t t, int first_half, float* y) {
  __m256 sums[kHalves][kTokens];
  for (auto& half : sums) {
    for (__m256& sum : half) sum = _mm256_setzero_ps();
  }
  const ReadAhead read = ReadAhead::Of<Tile>(args);
  for (size_t b = 0; b < args.n_column_tiles; ++b) {
    if (kTokens == 1 || t == 0) PrefetchAhead(&tiles[b], read);
    for (int h = 0; h < kHalves; ++h) {
      for (int i = 0; i < kTokens; ++i) {
        sums[h][i] = AddProduct<kHasLow>(
            tiles[b], first_half + h,
            BlockOf<kHasLow>(args.quantized, t + i, b), sums[h][i]);
      }
    }
  }
  for (int h = 0; h < kHalves; ++h) {
    for (int i = 0; i < kTokens; ++i) {
      _mm256_storeu_ps(y + i * args.y_stride + kHalfRows * (first_half + h),
                       sums[h][i]);
    }
  }
}

// The same in f32. Even and odd columns are summed apart: one chain of
// dependent additions would be slower than memory.
template <__m256 (*Load)(const uint16_t*), int kTokens, int kHalves>
inline void HalfRowTile(const MatmulArgs& args, const Tile16* tiles, size_t t,
                        int first_half, float* y) {
  __m256 sums[2][kHalves][kTokens];
  for (auto& parity : sums) {
    for (auto& half : parity) {
      for (__m256& sum : half) sum = _mm256_setzero_ps();
    }
  }
  const ReadAhead read = ReadAhead::Of<Tile16>(args);
  const float* x = args.x + t * args.x_stride;
  for (size_t b = 0; b < args.n_column_tiles; ++b, x += kTileColumns) {
    if (kTokens == 1 || t == 0) PrefetchAhead(&tiles[b], read);
    for (uint32_t c = 0; c < kTileColumns; c += 2) {
      for (int parity = 0; parity < 2; ++parity) {
        for (int h = 0; h < kHalves; ++h) {
          const __m256 w =
              Load(tiles[b].values[c + parity] + kHalfRows * (first_half + h));
          for (int i = 0; i < kTokens; ++i) {
            __m256& sum = sums[parity][h][i];
            sum = _mm256_fmadd_ps(
                w, _mm256_set1_ps(x[i * args.x_stride + c + parity]), sum);
          }
        }
      }
    }
  }
  for (int h = 0; h < kHalves; ++h) {
    for (int i = 0; i < kTokens; ++i) {
      _mm256_storeu_ps(y + i * args.y_stride + kHalfRows * (first_half + h),
                       _mm256_add_ps(sums[0][h][i], sums[1][h][i]));
    }
  }
}

// Row kernels by number of tokens: Kernel::Run<kTokens, kHalves>.
template <typename TileType, bool kHasLow>
struct QuantizedKernel {
  using Tile = TileType;
  template <int kTokens, int kHalves>
  static void Run(const MatmulArgs& args, const Tile* tiles, size_t t,
                  int first_half, float* y) {
    QuantizedRowTile<Tile, kHasLow, kTokens, kHalves>(args, tiles, t,
                                                      first_half, y);
  }
};

template <__m256 (*Load)(const uint16_t*)>
struct HalfKernel {
  using Tile = Tile16;
  template <int kTokens, int kHalves>
  static void Run(const MatmulArgs& args, const Tile* tiles, size_t t,
                  int first_half, float* y) {
    HalfRowTile<Load, kTokens, kHalves>(args, tiles, t, first_half, y);
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
    for (; t + 4 <= args.n_tokens; t += 4) {
      float* y_of_t = y + t * args.y_stride;
      Kernel::template Run<4, 1>(args, tiles, t, 0, y_of_t);
      Kernel::template Run<4, 1>(args, tiles, t, 1, y_of_t);
    }
    for (; t < args.n_tokens; ++t) {
      Kernel::template Run<1, 2>(args, tiles, t, 0, y + t * args.y_stride);
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

void AddAvx2Matmul(KernelTable* table) {
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
