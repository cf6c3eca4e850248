// Weight layouts of the compute kernels: tiles of 16 rows by 32 columns.
//
// A GGUF row keeps 32 weights of one row together, so a matrix-vector kernel
// must add horizontally after every block. A tile keeps the same four columns
// of 16 rows together: one 64-byte load feeds 16 accumulators and nothing is
// added across lanes. Measured 5x in cache and 2-3x from memory on Q4_1.
//
// A matrix [n_rows, n_columns] is n_row_tiles = ceil(n_rows / 16) runs of
// n_column_tiles = ceil(n_columns / 32) tiles; missing rows and columns are
// zero. Plain data, and what follows from a format alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lkv {

inline constexpr uint32_t kTileRows = 16;
inline constexpr uint32_t kTileColumns = 32;

enum class WeightFormat : uint8_t {
  kTile4,       // 4 bit, scale and minimum per 32 columns
  kTile8,       // 8 bit, scale per 32 columns
  kTile8x16,    // 8 bit, scale per 16 columns
  kTile16F16,   // IEEE half
  kTile16BF16,  // bfloat16
};
inline constexpr size_t kWeightFormats = 5;

// value(row r, column c) = scale[r] * quant + minimum[r], quant in 0..15.
// Byte quants[j][4 r + o] holds column 4 j + o in its low and column
// 16 + 4 j + o in its high half.
struct Tile4 {
  uint16_t scale[16];    // f16
  uint16_t minimum[16];  // f16
  uint8_t quants[4][64];
};
static_assert(sizeof(Tile4) == 320);

// value(r, c) = scale[r] * (quants[c / 4][4 r + c % 4] - 128). Stored with the
// offset of 128 because the dot-product instruction wants one unsigned side.
struct Tile8 {
  uint8_t quants[8][64];
  uint16_t scale[16];  // f16
};
static_assert(sizeof(Tile8) == 544);

// The same with one scale per 16 columns: scale[c / 16][r].
struct Tile8x16 {
  uint8_t quants[8][64];
  uint16_t scale[2][16];  // f16
};
static_assert(sizeof(Tile8x16) == 576);

// value(r, c) = values[c][r], f16 or bf16 by the matrix's format.
struct Tile16 {
  uint16_t values[32][16];
};
static_assert(sizeof(Tile16) == 1024);

inline constexpr size_t TileBytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kTile4:
      return sizeof(Tile4);
    case WeightFormat::kTile8:
      return sizeof(Tile8);
    case WeightFormat::kTile8x16:
      return sizeof(Tile8x16);
    case WeightFormat::kTile16F16:
    case WeightFormat::kTile16BF16:
      return sizeof(Tile16);
  }
  return 0;
}

// Whether kernels read activations in f32 for it; else quantised.
inline constexpr bool ReadsF32(WeightFormat format) {
  return format == WeightFormat::kTile16F16 ||
         format == WeightFormat::kTile16BF16;
}

}  // namespace lkv
