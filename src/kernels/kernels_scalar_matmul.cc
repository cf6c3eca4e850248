// Reference matrix products: what a tile means, written down once.
#include "kernels/kernel_sets.h"

namespace lkv {
namespace {

// Quantised activation (token t, column c) as an integer.
int32_t Activation(const QuantizedRows& x, size_t t, size_t c) {
  size_t i = t * x.stride + c;
  return x.low == nullptr ? x.high[i] : 256 * x.high[i] + x.low[i];
}

int32_t Nibble(const Tile4& tile, uint32_t row, uint32_t column) {
  uint32_t in_half = column % 16;
  uint8_t pair = tile.quants[in_half / 4][4 * row + in_half % 4];
  return column < 16 ? pair & 15 : pair >> 4;
}

// One row of a tile times the 32 columns of x that start at first_column.
float Tile4RowDot(const Tile4& tile, uint32_t row, const MatmulArgs& args,
                  size_t t, size_t first_column) {
  const QuantizedRows& x = args.quantized;
  int32_t dot = 0;
  for (uint32_t c = 0; c < kTileColumns; ++c) {
    dot += Nibble(tile, row, c) * Activation(x, t, first_column + c);
  }
  const float* sums = x.sums + (t * x.stride + first_column) / 16;
  return F16ToF32(tile.scale[row]) *
             x.scale[(t * x.stride + first_column) / 32] *
             static_cast<float>(dot) +
         F16ToF32(tile.minimum[row]) * (sums[0] + sums[1]);
}

// Columns [begin, end) of a row of quants stored with an offset of 128.
int32_t OffsetDot(const uint8_t (*quants)[64], uint32_t row, uint32_t begin,
                  uint32_t end, const QuantizedRows& x, size_t t,
                  size_t first_column) {
  int32_t dot = 0;
  for (uint32_t c = begin; c < end; ++c) {
    dot += (quants[c / 4][4 * row + c % 4] - 128) *
           Activation(x, t, first_column + c);
  }
  return dot;
}

float Tile8RowDot(const Tile8& tile, uint32_t row, const MatmulArgs& args,
                  size_t t, size_t first_column) {
  const QuantizedRows& x = args.quantized;
  int32_t dot = OffsetDot(tile.quants, row, 0, 32, x, t, first_column);
  return F16ToF32(tile.scale[row]) *
         x.scale[(t * x.stride + first_column) / 32] * static_cast<float>(dot);
}

float Tile8x16RowDot(const Tile8x16& tile, uint32_t row, const MatmulArgs& args,
                     size_t t, size_t first_column) {
  const QuantizedRows& x = args.quantized;
  int32_t left = OffsetDot(tile.quants, row, 0, 16, x, t, first_column);
  int32_t right = OffsetDot(tile.quants, row, 16, 32, x, t, first_column);
  return x.scale[(t * x.stride + first_column) / 32] *
         (F16ToF32(tile.scale[0][row]) * static_cast<float>(left) +
          F16ToF32(tile.scale[1][row]) * static_cast<float>(right));
}

template <float (*ToF32)(uint16_t)>
float Tile16RowDot(const Tile16& tile, uint32_t row, const MatmulArgs& args,
                   size_t t, size_t first_column) {
  const float* x = args.x + t * args.x_stride + first_column;
  float sum = 0;
  for (uint32_t c = 0; c < kTileColumns; ++c) {
    sum += ToF32(tile.values[c][row]) * x[c];
  }
  return sum;
}

template <typename Tile, float (*RowDot)(const Tile&, uint32_t,
                                         const MatmulArgs&, size_t, size_t)>
void Matmul(const MatmulArgs& args) {
  const Tile* tiles = static_cast<const Tile*>(args.tiles);
  for (size_t t = 0; t < args.n_tokens; ++t) {
    for (size_t i = args.row_tile_begin; i < args.row_tile_end; ++i) {
      for (uint32_t row = 0; row < kTileRows; ++row) {
        float sum = 0;
        for (size_t b = 0; b < args.n_column_tiles; ++b) {
          sum += RowDot(tiles[i * args.n_column_tiles + b], row, args, t,
                        b * kTileColumns);
        }
        args.y[t * args.y_stride + i * kTileRows + row] = sum;
      }
    }
  }
}

}  // namespace

void AddScalarMatmul(KernelTable* table) {
  table->matmul[static_cast<size_t>(WeightFormat::kTile4)] =
      Matmul<Tile4, Tile4RowDot>;
  table->matmul[static_cast<size_t>(WeightFormat::kTile8)] =
      Matmul<Tile8, Tile8RowDot>;
  table->matmul[static_cast<size_t>(WeightFormat::kTile8x16)] =
      Matmul<Tile8x16, Tile8x16RowDot>;
  table->matmul[static_cast<size_t>(WeightFormat::kTile16F16)] =
      Matmul<Tile16, Tile16RowDot<F16ToF32>>;
  table->matmul[static_cast<size_t>(WeightFormat::kTile16BF16)] =
      Matmul<Tile16, Tile16RowDot<BF16ToF32>>;
}

}  // namespace lkv
