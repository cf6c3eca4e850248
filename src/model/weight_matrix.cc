#include "model/weight_matrix.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/kernel_table.h"

namespace lkv {
namespace {

// value(r, c) = scale[r] * quant + minimum[r].
void ReadTile(const Tile4& tile, uint32_t r, float* out) {
  const float scale = F16ToF32(tile.scale[r]);
  const float minimum = F16ToF32(tile.minimum[r]);
  for (uint32_t c = 0; c < kTileColumns / 2; ++c) {
    const uint8_t byte = tile.quants[c / 4][4 * r + c % 4];
    out[c] = scale * (byte & 15) + minimum;
    out[c + kTileColumns / 2] = scale * (byte >> 4) + minimum;
  }
}

void ReadTile(const Tile8& tile, uint32_t r, float* out) {
  const float scale = F16ToF32(tile.scale[r]);
  for (uint32_t c = 0; c < kTileColumns; ++c) {
    out[c] = scale * (tile.quants[c / 4][4 * r + c % 4] - 128);
  }
}

void ReadTile(const Tile8x16& tile, uint32_t r, float* out) {
  const float scale[2] = {F16ToF32(tile.scale[0][r]),
                          F16ToF32(tile.scale[1][r])};
  for (uint32_t c = 0; c < kTileColumns; ++c) {
    out[c] = scale[c / 16] * (tile.quants[c / 4][4 * r + c % 4] - 128);
  }
}

template <typename Tile, typename Read>
void ReadTiles(const WeightMatrix& matrix, uint32_t row, Read read,
               float* out) {
  const Tile* tiles =
      reinterpret_cast<const Tile*>(matrix.row_tile(row / kTileRows));
  uint32_t column = 0;
  for (; column + kTileColumns <= matrix.n_columns; column += kTileColumns) {
    read(*tiles++, row % kTileRows, out + column);
  }
  if (column < matrix.n_columns) {
    float last[kTileColumns];
    read(*tiles, row % kTileRows, last);
    std::copy_n(last, matrix.n_columns - column, out + column);
  }
}

template <typename Convert>
void ReadTiles16(const WeightMatrix& matrix, uint32_t row, Convert convert,
                 float* out) {
  ReadTiles<Tile16>(
      matrix, row,
      [&](const Tile16& tile, uint32_t r, float* values) {
        for (uint32_t c = 0; c < kTileColumns; ++c) {
          values[c] = convert(tile.values[c][r]);
        }
      },
      out);
}

}  // namespace

void ReadRow(const WeightMatrix& matrix, uint32_t row, float* out) {
  CHECK(row < matrix.n_rows);
  const auto read = [](const auto& tile, uint32_t r, float* values) {
    ReadTile(tile, r, values);
  };
  switch (matrix.format) {
    case WeightFormat::kTile4:
      return ReadTiles<Tile4>(matrix, row, read, out);
    case WeightFormat::kTile8:
      return ReadTiles<Tile8>(matrix, row, read, out);
    case WeightFormat::kTile8x16:
      return ReadTiles<Tile8x16>(matrix, row, read, out);
    case WeightFormat::kTile16F16:
      return ReadTiles16(matrix, row, F16ToF32, out);
    case WeightFormat::kTile16BF16:
      return ReadTiles16(matrix, row, BF16ToF32, out);
  }
}

}  // namespace lkv
