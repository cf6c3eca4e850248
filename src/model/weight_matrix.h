// WeightMatrix: a matrix in one of the kernels' tile formats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "kernels/tiles.h"

namespace lkv {

// A matrix [n_rows, n_columns] as row tiles of column tiles (kernels/tiles.h).
// Row tiles need not lie next to each other: those of two matrices that are
// read together may alternate. Borrows its tiles.
struct WeightMatrix {
  WeightFormat format = WeightFormat::kTile4;
  uint32_t n_rows = 0;
  uint32_t n_columns = 0;
  const uint8_t* tiles = nullptr;  // the first row tile
  size_t row_tile_stride = 0;      // bytes from one row tile to the next

  size_t n_row_tiles() const { return CeilDiv(n_rows, kTileRows); }
  size_t n_column_tiles() const { return CeilDiv(n_columns, kTileColumns); }
  size_t row_tile_bytes() const { return n_column_tiles() * TileBytes(format); }
  // Of all its tiles, without what lies between.
  size_t n_bytes() const { return n_row_tiles() * row_tile_bytes(); }
  bool is_contiguous() const { return row_tile_stride == row_tile_bytes(); }
  const uint8_t* row_tile(size_t i) const {
    return tiles + i * row_tile_stride;
  }
};

// out [n_columns] = row `row` of the matrix, as its tiles hold it.
// Requires row < n_rows. 1 us per 1,000 columns.
void ReadRow(const WeightMatrix& matrix, uint32_t row, float* out);

}  // namespace lkv
