// WeightMatrix: a matrix in one of the kernels' tile formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.h"
#include "kernels/tiles.h"

namespace lkv {

// A matrix [n_rows, n_columns] as row tiles of column tiles (kernels/tiles.h).
// Borrows its tiles.
struct WeightMatrix {
  WeightFormat format = WeightFormat::kTile4;
  uint32_t n_rows = 0;
  uint32_t n_columns = 0;
  std::span<const uint8_t> tiles;

  size_t n_row_tiles() const { return CeilDiv(n_rows, kTileRows); }
  size_t n_column_tiles() const { return CeilDiv(n_columns, kTileColumns); }
};

// out [n_columns] = row `row` of the matrix, as its tiles hold it.
// Requires row < n_rows. 1 us per 1,000 columns.
void ReadRow(const WeightMatrix& matrix, uint32_t row, float* out);

}  // namespace lkv
