#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_sets.h"

namespace lkv {
namespace {

constexpr WeightFormat kFormats[] = {
    WeightFormat::kTile4, WeightFormat::kTile8, WeightFormat::kTile8x16,
    WeightFormat::kTile16F16, WeightFormat::kTile16BF16};

// A matrix of random tiles, its bytes exactly as long as it is.
struct Matrix {
  WeightFormat format;
  size_t n_row_tiles;
  size_t n_column_tiles;
  std::vector<uint8_t> bytes;

  size_t n_rows() const { return n_row_tiles * kTileRows; }
  size_t n_columns() const { return n_column_tiles * kTileColumns; }

  template <typename Tile>
  const Tile& tile(size_t row, size_t column) const {
    return reinterpret_cast<const Tile*>(
        bytes.data())[row / kTileRows * n_column_tiles + column / kTileColumns];
  }

  // The weight as tiles.h defines it.
  double Value(size_t row, size_t column) const {
    size_t r = row % kTileRows;
    size_t c = column % kTileColumns;
    switch (format) {
      case WeightFormat::kTile4: {
        const auto& t = tile<Tile4>(row, column);
        uint8_t pair = t.quants[c % 16 / 4][4 * r + c % 4];
        int quant = c < 16 ? pair % 16 : pair / 16;
        return double{F16ToF32(t.scale[r])} * quant + F16ToF32(t.minimum[r]);
      }
      case WeightFormat::kTile8: {
        const auto& t = tile<Tile8>(row, column);
        return double{F16ToF32(t.scale[r])} *
               (t.quants[c / 4][4 * r + c % 4] - 128);
      }
      case WeightFormat::kTile8x16: {
        const auto& t = tile<Tile8x16>(row, column);
        return double{F16ToF32(t.scale[c / 16][r])} *
               (t.quants[c / 4][4 * r + c % 4] - 128);
      }
      case WeightFormat::kTile16F16:
        return F16ToF32(tile<Tile16>(row, column).values[c][r]);
      case WeightFormat::kTile16BF16:
        return BF16ToF32(tile<Tile16>(row, column).values[c][r]);
    }
    return 0;
  }
};

template <typename Tile>
void FillQuants(Tile* tile, Random* random) {
  for (auto& group : tile->quants) {
    for (uint8_t& byte : group) {
      byte = static_cast<uint8_t>(random->Below(256));
    }
  }
}

template <size_t n>
void FillHalves(uint16_t (&halves)[n], float magnitude, Random* random) {
  for (uint16_t& half : halves) {
    half = F32ToF16(random->Uniform(-magnitude, magnitude));
  }
}

Matrix RandomMatrix(WeightFormat format, size_t n_row_tiles,
                    size_t n_column_tiles, Random* random) {
  Matrix matrix{format, n_row_tiles, n_column_tiles, {}};
  size_t n_tiles = n_row_tiles * n_column_tiles;
  matrix.bytes.resize(n_tiles * TileBytes(format));
  for (size_t i = 0; i < n_tiles; ++i) {
    void* tile = matrix.bytes.data() + i * TileBytes(format);
    switch (format) {
      case WeightFormat::kTile4:
        FillQuants(static_cast<Tile4*>(tile), random);
        FillHalves(static_cast<Tile4*>(tile)->scale, 0.01f, random);
        FillHalves(static_cast<Tile4*>(tile)->minimum, 0.1f, random);
        break;
      case WeightFormat::kTile8:
        FillQuants(static_cast<Tile8*>(tile), random);
        FillHalves(static_cast<Tile8*>(tile)->scale, 0.001f, random);
        break;
      case WeightFormat::kTile8x16:
        FillQuants(static_cast<Tile8x16*>(tile), random);
        FillHalves(static_cast<Tile8x16*>(tile)->scale[0], 0.001f, random);
        FillHalves(static_cast<Tile8x16*>(tile)->scale[1], 0.001f, random);
        break;
      case WeightFormat::kTile16F16:
        for (auto& row : static_cast<Tile16*>(tile)->values) {
          FillHalves(row, 0.1f, random);
        }
        break;
      case WeightFormat::kTile16BF16:
        for (auto& row : static_cast<Tile16*>(tile)->values) {
          for (uint16_t& half : row) {
            half = F32ToBF16(random->Uniform(-0.1f, 0.1f));
          }
        }
        break;
    }
  }
  return matrix;
}

// Rows of activations, quantised by one set, exactly as long as they are.
struct Activations {
  size_t n_tokens;
  size_t n_columns;
  std::vector<float> x;
  std::vector<int8_t> high;
  std::vector<int8_t> low;
  std::vector<float> scale;
  std::vector<float> sums;

  Activations(std::vector<float> values, size_t n_columns, bool with_low)
      : n_tokens(values.size() / n_columns),
        n_columns(n_columns),
        x(std::move(values)),
        high(x.size()),
        low(with_low ? x.size() : 0),
        scale(x.size() / 32),
        sums(x.size() / 16) {
    const KernelTable* scalar = SelectKernels("scalar");
    for (size_t t = 0; t < n_tokens; ++t) {
      scalar->quantize_row(&x[t * n_columns], n_columns, &high[t * n_columns],
                           with_low ? &low[t * n_columns] : nullptr,
                           &scale[t * n_columns / 32],
                           &sums[t * n_columns / 16]);
    }
  }

  // The activation that the kernels of a format see.
  double Value(WeightFormat format, size_t t, size_t column) const {
    size_t i = t * n_columns + column;
    if (format == WeightFormat::kTile16F16 ||
        format == WeightFormat::kTile16BF16) {
      return x[i];
    }
    int quant = low.empty() ? high[i] : 256 * high[i] + low[i];
    return double{scale[i / 32]} * quant;
  }

  MatmulArgs Args(const Matrix& matrix, size_t first_token, size_t n,
                  std::vector<float>* y) const {
    size_t first = first_token * n_columns;
    return {.tiles = matrix.bytes.data(),
            .n_column_tiles = matrix.n_column_tiles,
            .row_tile_begin = 0,
            .row_tile_end = matrix.n_row_tiles,
            .n_tokens = n,
            .quantized = {.high = high.data() + first,
                          .low = low.empty() ? nullptr : low.data() + first,
                          .scale = scale.data() + first / 32,
                          .sums = sums.data() + first / 16,
                          .stride = n_columns},
            .x = x.data() + first,
            .x_stride = n_columns,
            .y = y->data() + first_token * matrix.n_rows(),
            .y_stride = matrix.n_rows(),
            // Prefetching it changes nothing.
            .next = matrix.bytes.data()};
  }
};

std::vector<float> Product(const KernelTable& set, const Matrix& matrix,
                           const Activations& x) {
  std::vector<float> y(x.n_tokens * matrix.n_rows());
  set.matmul[static_cast<size_t>(matrix.format)](
      x.Args(matrix, 0, x.n_tokens, &y));
  return y;
}

// Largest distance of y to the product in double precision, as a share of the
// sum of absolute terms.
double WorstError(const Matrix& matrix, const Activations& x,
                  const std::vector<float>& y) {
  double worst = 0;
  for (size_t t = 0; t < x.n_tokens; ++t) {
    for (size_t row = 0; row < matrix.n_rows(); ++row) {
      double sum = 0;
      double absolute = 1e-30;
      for (size_t c = 0; c < matrix.n_columns(); ++c) {
        double term = matrix.Value(row, c) * x.Value(matrix.format, t, c);
        sum += term;
        absolute += std::fabs(term);
      }
      double error = std::fabs(sum - y[t * matrix.n_rows() + row]);
      worst = std::fmax(worst, error / absolute);
    }
  }
  return worst;
}

class MatmulTest : public ::testing::TestWithParam<WeightFormat> {};

INSTANTIATE_TEST_SUITE_P(AllFormats, MatmulTest, ::testing::ValuesIn(kFormats));

TEST_P(MatmulTest, EverySetAgreesWithDoublePrecision) {
  Random random(1);
  for (const KernelTable* set : AllSets()) {
    for (bool with_low : {false, true}) {
      for (size_t n_column_tiles : {1, 2, 3, 18}) {
        for (size_t n_tokens : {1, 2, 3, 5, 17}) {
          Matrix matrix = RandomMatrix(GetParam(), 3, n_column_tiles, &random);
          Activations x(random.Activations(n_tokens * matrix.n_columns()),
                        matrix.n_columns(), with_low);
          // f32 sums of up to 576 terms that differ in order.
          EXPECT_LE(WorstError(matrix, x, Product(*set, matrix, x)), 1e-6)
              << set->name << " tiles " << n_column_tiles << " tokens "
              << n_tokens << " low " << with_low;
        }
      }
    }
  }
}

TEST_P(MatmulTest, ATokensResultDoesNotDependOnTheOthers) {
  Random random(2);
  for (const KernelTable* set : AllSets()) {
    for (bool with_low : {false, true}) {
      Matrix matrix = RandomMatrix(GetParam(), 2, 5, &random);
      Activations x(random.Activations(17 * matrix.n_columns()),
                    matrix.n_columns(), with_low);
      std::vector<float> alone(17 * matrix.n_rows());
      for (size_t t = 0; t < 17; ++t) {
        set->matmul[static_cast<size_t>(GetParam())](
            x.Args(matrix, t, 1, &alone));
      }
      for (size_t n = 1; n <= 17; ++n) {
        std::vector<float> together(17 * matrix.n_rows());
        set->matmul[static_cast<size_t>(GetParam())](
            x.Args(matrix, 0, n, &together));
        EXPECT_EQ(0, std::memcmp(alone.data(), together.data(),
                                 n * matrix.n_rows() * sizeof(float)))
            << set->name << " tokens " << n << " low " << with_low;
      }
    }
  }
}

TEST_P(MatmulTest, WritesTheRowsOfItsTilesOnly) {
  Random random(3);
  for (const KernelTable* set : AllSets()) {
    for (size_t n_tokens : {1, 11}) {
      Matrix matrix = RandomMatrix(GetParam(), 4, 2, &random);
      Activations x(random.Activations(n_tokens * matrix.n_columns()),
                    matrix.n_columns(), false);
      std::vector<float> whole = Product(*set, matrix, x);
      std::vector<float> part(whole.size(), -7.0f);
      MatmulArgs args = x.Args(matrix, 0, n_tokens, &part);
      args.row_tile_begin = 1;
      args.row_tile_end = 3;
      set->matmul[static_cast<size_t>(GetParam())](args);
      for (size_t i = 0; i < part.size(); ++i) {
        size_t tile = i % matrix.n_rows() / kTileRows;
        bool inside = tile == 1 || tile == 2;
        EXPECT_EQ(part[i], inside ? whole[i] : -7.0f) << set->name << " " << i;
      }
    }
  }
}

// All quants and all activations at their ends: where 16-bit sums would
// saturate and signs would wrap.
TEST_P(MatmulTest, ExtremeQuantsAreExact) {
  if (GetParam() == WeightFormat::kTile16F16 ||
      GetParam() == WeightFormat::kTile16BF16) {
    return;
  }
  Random random(4);
  for (const KernelTable* set : AllSets()) {
    for (bool with_low : {false, true}) {
      for (int pattern = 0; pattern < 4; ++pattern) {
        Matrix matrix = RandomMatrix(GetParam(), 1, 2, &random);
        // Quants lie in the whole byte or in both its halves.
        uint8_t quant = pattern % 2 == 0 ? 0xff : 0x00;
        for (size_t i = 0; i < matrix.bytes.size();
             i += TileBytes(GetParam())) {
          uint8_t* tile = matrix.bytes.data() + i;
          bool is4 = GetParam() == WeightFormat::kTile4;
          std::memset(is4 ? tile + 64 : tile, quant, is4 ? 256 : 512);
        }
        float sign = pattern / 2 == 0 ? 1.0f : -1.0f;
        Activations x(std::vector<float>(9 * matrix.n_columns(), sign),
                      matrix.n_columns(), with_low);
        if (with_low) {
          // -128 is the low half that no high half has.
          for (int8_t& low : x.low) low = -128;
          for (size_t i = 0; i < x.sums.size(); ++i) {
            x.sums[i] = x.scale[i / 2] * 16 * (256.0f * x.high[0] - 128);
          }
        }
        EXPECT_LE(WorstError(matrix, x, Product(*set, matrix, x)), 1e-6)
            << set->name << " low " << with_low << " pattern " << pattern;
      }
    }
  }
}

}  // namespace
}  // namespace lkv
