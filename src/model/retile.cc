#include "model/retile.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "kernels/kernel_table.h"
#include "model/gguf_blocks.h"

namespace lkv {
namespace {

constexpr float kF16Max = 65504.0f;

bool IsFiniteF16(uint16_t value) { return (value & 0x7c00) != 0x7c00; }
bool IsFiniteBF16(uint16_t value) { return (value & 0x7f80) != 0x7f80; }

// Where one tile row's share of a tile goes. False: a scale is not finite.
bool StoreBlock(const Block4& block, uint32_t r, Tile4* tile) {
  tile->scale[r] = block.scale;
  tile->minimum[r] = block.minimum;
  for (uint32_t j = 0; j < 4; ++j) {
    std::memcpy(&tile->quants[j][4 * r], &block.quants[4 * j], 4);
  }
  return IsFiniteF16(block.scale) && IsFiniteF16(block.minimum);
}

bool StoreBlock(const Block8& block, uint32_t r, Tile8* tile) {
  tile->scale[r] = block.scale[0];
  for (uint32_t j = 0; j < 8; ++j) {
    std::memcpy(&tile->quants[j][4 * r], &block.quants[4 * j], 4);
  }
  return IsFiniteF16(block.scale[0]);
}

bool StoreBlock(const Block8& block, uint32_t r, Tile8x16* tile) {
  tile->scale[0][r] = block.scale[0];
  tile->scale[1][r] = block.scale[1];
  for (uint32_t j = 0; j < 8; ++j) {
    std::memcpy(&tile->quants[j][4 * r], &block.quants[4 * j], 4);
  }
  return IsFiniteF16(block.scale[0]) && IsFiniteF16(block.scale[1]);
}

// The rows of a tensor that one item re-tiles, [begin, end) row tiles.
struct TileRange {
  const GgufTensor& tensor;
  const WeightMatrix& matrix;
  uint8_t* tiles;  // of the matrix
  Range row_tiles;
  std::span<float> row;  // of one row in f32, for types that go through it

  const uint8_t* source_row(size_t row) const {
    return tensor.data + row * tensor.row_bytes;
  }
  template <typename Tile>
  Tile* tile_row(size_t row) const {
    return reinterpret_cast<Tile*>(tiles +
                                   row / kTileRows * matrix.row_tile_stride);
  }
  // The last tile may be short of rows; what is missing stays zero.
  size_t begin_row() const { return row_tiles.begin * kTileRows; }
  size_t end_row() const {
    return std::min<size_t>(row_tiles.end * kTileRows, matrix.n_rows);
  }
};

// Types whose blocks are read as they lie in the file.
template <typename Tile, typename ReadBlock>
bool RetileBlocks(const TileRange& range, ReadBlock read_block) {
  bool finite = true;
  for (size_t row = range.begin_row(); row < range.end_row(); ++row) {
    const uint8_t* source = range.source_row(row);
    Tile* tiles = range.tile_row<Tile>(row);
    for (size_t i = 0; i < range.matrix.n_column_tiles(); ++i) {
      finite &= StoreBlock(read_block(source, i),
                           static_cast<uint32_t>(row % kTileRows), &tiles[i]);
    }
  }
  return finite;
}

// Types of single numbers, converted to 16 bits one by one.
template <typename Source, typename Convert, typename IsFinite>
bool RetileRow16(const TileRange& range, size_t row, const void* source,
                 Convert convert, IsFinite is_finite) {
  bool finite = true;
  Tile16* tiles = range.tile_row<Tile16>(row);
  for (size_t c = 0; c < range.matrix.n_columns; ++c) {
    Source value;
    std::memcpy(&value,
                static_cast<const uint8_t*>(source) + c * sizeof(Source),
                sizeof(Source));
    const uint16_t converted = convert(value);
    tiles[c / kTileColumns].values[c % kTileColumns][row % kTileRows] =
        converted;
    finite &= is_finite(converted);
  }
  return finite;
}

template <typename Source, typename Convert, typename IsFinite>
bool RetileValues(const TileRange& range, Convert convert, IsFinite is_finite) {
  bool finite = true;
  for (size_t row = range.begin_row(); row < range.end_row(); ++row) {
    finite &= RetileRow16<Source>(range, row, range.source_row(row), convert,
                                  is_finite);
  }
  return finite;
}

// Types that only 16 bits carry well, through f32.
bool RetileDequantized(const TileRange& range) {
  bool finite = true;
  for (size_t row = range.begin_row(); row < range.end_row(); ++row) {
    Dequantize(range.tensor.raw_type, range.source_row(row),
               range.matrix.n_columns, range.row.data());
    finite &=
        RetileRow16<float>(range, row, range.row.data(), F32ToF16, IsFiniteF16);
  }
  return finite;
}

// Every other type, through f32.
bool RetileRequantized(const TileRange& range) {
  const size_t n_columns = range.matrix.n_columns;
  const std::span<float> values = range.row;
  bool finite = true;
  for (size_t row = range.begin_row(); row < range.end_row(); ++row) {
    Dequantize(range.tensor.raw_type, range.source_row(row), n_columns,
               values.data());
    for (float& value : values) {
      if (!std::isfinite(value)) {
        finite = false;
        value = 0;
      }
    }
    Tile8x16* tiles = range.tile_row<Tile8x16>(row);
    for (size_t i = 0; i < range.matrix.n_column_tiles(); ++i) {
      finite &= StoreBlock(QuantizeBlock8(values.data(), i),
                           static_cast<uint32_t>(row % kTileRows), &tiles[i]);
    }
  }
  return finite;
}

// False: a value or scale is not finite in the matrix's format.
bool RetileRange(const TileRange& range) {
  const auto copy = [](uint16_t value) { return value; };
  switch (range.tensor.type) {
    case GgufType::kQ4_0:
      return RetileBlocks<Tile4>(range, ReadQ4_0);
    case GgufType::kQ4_1:
      return RetileBlocks<Tile4>(range, ReadQ4_1);
    case GgufType::kQ4_K:
      return RetileBlocks<Tile4>(range, ReadQ4_K);
    case GgufType::kQ5_0:
      return RetileBlocks<Tile8>(range, ReadQ5_0);
    case GgufType::kQ8_0:
      return RetileBlocks<Tile8>(range, ReadQ8_0);
    case GgufType::kIQ4_NL:
      return RetileBlocks<Tile8>(range, ReadIQ4_NL);
    case GgufType::kQ3_K:
      return RetileBlocks<Tile8x16>(range, ReadQ3_K);
    case GgufType::kQ6_K:
      return RetileBlocks<Tile8x16>(range, ReadQ6_K);
    case GgufType::kF16:
      return RetileValues<uint16_t>(range, copy, IsFiniteF16);
    case GgufType::kBF16:
      return RetileValues<uint16_t>(range, copy, IsFiniteBF16);
    case GgufType::kF32:
      return range.matrix.format == WeightFormat::kTile16F16
                 ? RetileValues<float>(range, F32ToF16, IsFiniteF16)
                 : RetileValues<float>(range, F32ToBF16, IsFiniteBF16);
    case GgufType::kQ5_1:
    case GgufType::kQ5_K:
      return RetileDequantized(range);
    case GgufType::kOther:
      break;
  }
  return RetileRequantized(range);
}

// The largest magnitude of an F32 tensor; infinite when a value is not finite.
float PeakOf(const GgufTensor& tensor) {
  const size_t n = tensor.n_bytes / sizeof(float);
  float peak = 0;
  for (size_t i = 0; i < n; ++i) {
    float value;
    std::memcpy(&value, tensor.data + i * sizeof(float), sizeof(float));
    if (!std::isfinite(value)) return std::numeric_limits<float>::infinity();
    peak = std::max(peak, std::abs(value));
  }
  return peak;
}

}  // namespace

FormatChoice ChooseFormat(GgufType type) {
  switch (type) {
    case GgufType::kQ4_0:
    case GgufType::kQ4_1:
      return {WeightFormat::kTile4, Exactness::kExact};
    case GgufType::kQ4_K:
      return {WeightFormat::kTile4, Exactness::kRounded};
    case GgufType::kQ5_0:
    case GgufType::kQ8_0:
    case GgufType::kIQ4_NL:
      return {WeightFormat::kTile8, Exactness::kExact};
    case GgufType::kQ3_K:
    case GgufType::kQ6_K:
      return {WeightFormat::kTile8x16, Exactness::kRounded};
    case GgufType::kF16:
      return {WeightFormat::kTile16F16, Exactness::kExact};
    case GgufType::kBF16:
      return {WeightFormat::kTile16BF16, Exactness::kExact};
    case GgufType::kF32:
    case GgufType::kQ5_1:
    case GgufType::kQ5_K:
      return {WeightFormat::kTile16F16, Exactness::kRounded};
    case GgufType::kOther:
      break;
  }
  return {WeightFormat::kTile8x16, Exactness::kRequantized};
}

uint64_t RowTileBytes(const GgufTensor& tensor) {
  return CeilDiv(tensor.shape[0], kTileColumns) *
         TileBytes(ChooseFormat(tensor.type).format);
}

uint64_t RetiledBytes(const GgufTensor& tensor) {
  return CeilDiv(tensor.shape[1], kTileRows) * RowTileBytes(tensor);
}

Result<WeightMatrix> Retile(const GgufTensor& tensor, uint8_t* tiles,
                            size_t row_tile_stride, ThreadTeam& team) {
  CHECK(tensor.shape.size() == 2);
  CHECK(row_tile_stride >= RowTileBytes(tensor));
  WeightMatrix matrix;
  matrix.n_columns = static_cast<uint32_t>(tensor.shape[0]);
  matrix.n_rows = static_cast<uint32_t>(tensor.shape[1]);
  matrix.format = ChooseFormat(tensor.type).format;
  if (tensor.type == GgufType::kF32 && PeakOf(tensor) > kF16Max) {
    matrix.format = WeightFormat::kTile16BF16;
  }
  matrix.tiles = tiles;
  matrix.row_tile_stride = row_tile_stride;

  // For all members here: an item must not run out of memory.
  const size_t row_floats = matrix.n_column_tiles() * kTileColumns;
  AlignedBuffer<float> rows(team.n_threads() * row_floats);
  std::atomic<bool> finite = true;
  // Some 20 us each, or more.
  constexpr size_t kItemBytes = size_t{64} << 10;
  const size_t n_tiles = matrix.n_row_tiles();
  const size_t n_items = CountItems(matrix.n_bytes(), kItemBytes, n_tiles);
  team.Run([&](TeamMember& me) {
    const std::span<float> row =
        rows.span().subspan(me.index() * row_floats, row_floats);
    me.ForEach(n_items, [&](size_t item) {
      if (!RetileRange(
              {tensor, matrix, tiles, RangeOf(n_tiles, item, n_items), row})) {
        finite = false;
      }
    });
  });
  if (!finite) {
    return Corrupt("tensor " + tensor.name +
                   " holds a value or scale that is not finite or beyond the "
                   "range of 16 bits; fetch or convert the model again");
  }
  return matrix;
}

}  // namespace lkv
