#include "model/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ggml.h"
#include "kernels/kernel_table.h"
#include "model/retile.h"
#include "testing/random_model.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

// A tensor that owns its bytes.
struct OwnedTensor {
  std::vector<uint8_t> bytes;
  GgufTensor tensor;
};

OwnedTensor NewTensor(ggml_type raw_type, GgufType type, uint32_t n_columns,
                      uint32_t n_rows) {
  OwnedTensor out;
  out.tensor.name = "matrix";
  out.tensor.type = type;
  out.tensor.raw_type = raw_type;
  out.tensor.shape = {n_columns, n_rows};
  out.tensor.row_bytes = ggml_row_size(raw_type, n_columns);
  out.tensor.n_bytes = out.tensor.row_bytes * n_rows;
  out.bytes.resize(out.tensor.n_bytes);
  out.tensor.data = out.bytes.data();
  return out;
}

std::vector<float> NormalValues(size_t n, float deviation) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// Quantised by ggml; the importance matrix that some types want is flat.
OwnedTensor QuantisedTensor(ggml_type raw_type, GgufType type,
                            uint32_t n_columns, uint32_t n_rows) {
  OwnedTensor out = NewTensor(raw_type, type, n_columns, n_rows);
  const auto values = NormalValues(size_t{n_columns} * n_rows, 0.05f);
  const std::vector<float> importance(n_columns, 1.0f);
  ggml_quantize_init(raw_type);
  ggml_quantize_chunk(raw_type, values.data(), out.bytes.data(), 0, n_rows,
                      n_columns, importance.data());
  return out;
}

void SetF16(OwnedTensor* tensor, size_t offset, float value) {
  const uint16_t half = F32ToF16(value);
  std::memcpy(&tensor->bytes[offset], &half, sizeof(half));
}

// A block type that we read as it lies in the file.
struct BlockType {
  const char* name;
  ggml_type raw_type;
  GgufType type;
  std::vector<size_t> f16_offsets;  // in the block
};

const std::vector<BlockType>& BlockTypes() {
  static const std::vector<BlockType> types = {
      {"Q4_0", GGML_TYPE_Q4_0, GgufType::kQ4_0, {0}},
      {"Q4_1", GGML_TYPE_Q4_1, GgufType::kQ4_1, {0, 2}},
      {"Q5_0", GGML_TYPE_Q5_0, GgufType::kQ5_0, {0}},
      {"Q8_0", GGML_TYPE_Q8_0, GgufType::kQ8_0, {0}},
      {"IQ4_NL", GGML_TYPE_IQ4_NL, GgufType::kIQ4_NL, {0}},
      {"Q3_K", GGML_TYPE_Q3_K, GgufType::kQ3_K, {108}},
      {"Q4_K", GGML_TYPE_Q4_K, GgufType::kQ4_K, {0, 2}},
      {"Q6_K", GGML_TYPE_Q6_K, GgufType::kQ6_K, {208}},
  };
  return types;
}

// Every bit pattern of quants and packed scales, with f16 scales of the size
// that models have.
OwnedTensor RandomBlocks(const BlockType& type, uint32_t n_columns,
                         uint32_t n_rows) {
  OwnedTensor out = NewTensor(type.raw_type, type.type, n_columns, n_rows);
  std::mt19937 random(5);
  for (uint8_t& byte : out.bytes) byte = static_cast<uint8_t>(random());
  std::uniform_real_distribution<float> scale(0.001f, 0.02f);
  const size_t block_bytes = ggml_type_size(type.raw_type);
  for (size_t at = 0; at < out.bytes.size(); at += block_bytes) {
    for (size_t offset : type.f16_offsets) {
      SetF16(&out, at + offset, scale(random));
    }
  }
  return out;
}

// Any bytes, but for bit 6: as the upper byte of an f16 scale it would allow
// infinity; without it scales stay below 2.
OwnedTensor RandomBytes(ggml_type raw_type, GgufType type, uint32_t n_columns,
                        uint32_t n_rows) {
  OwnedTensor out = NewTensor(raw_type, type, n_columns, n_rows);
  std::mt19937 random(6);
  for (uint8_t& byte : out.bytes) {
    byte = static_cast<uint8_t>(random() & ~0x40u);
  }
  return out;
}

std::vector<float> DequantizedByGgml(const GgufTensor& tensor) {
  std::vector<float> values(tensor.shape[0] * tensor.shape[1]);
  Dequantize(tensor.raw_type, tensor.data, values.size(), values.data());
  return values;
}

// A matrix with its tiles.
struct OwnedMatrix : WeightMatrix {
  AlignedBuffer<uint8_t> memory;
};

Result<OwnedMatrix> RetileOwned(const GgufTensor& tensor, ThreadTeam& team) {
  AlignedBuffer<uint8_t> memory(RetiledBytes(tensor));
  auto matrix = Retile(tensor, memory.data(), RowTileBytes(tensor), team);
  if (!matrix.ok()) return matrix.status();
  return OwnedMatrix{*matrix, std::move(memory)};
}

// One weight, from the definitions in kernels/tiles.h.
struct Weight {
  float value = 0;
  float minimum = 0;
  float scale = 0;
  int quant = 0;
};

Weight WeightAt(const WeightMatrix& matrix, uint32_t row, uint32_t column) {
  const uint8_t* at = matrix.row_tile(row / kTileRows) +
                      column / kTileColumns * TileBytes(matrix.format);
  const uint32_t r = row % kTileRows;
  const uint32_t c = column % kTileColumns;
  Weight weight;
  switch (matrix.format) {
    case WeightFormat::kTile4: {
      const Tile4& tile = *reinterpret_cast<const Tile4*>(at);
      const uint8_t byte = tile.quants[c % 16 / 4][4 * r + c % 4];
      weight.quant = c < 16 ? byte & 15 : byte >> 4;
      weight.scale = F16ToF32(tile.scale[r]);
      weight.minimum = F16ToF32(tile.minimum[r]);
      break;
    }
    case WeightFormat::kTile8: {
      const Tile8& tile = *reinterpret_cast<const Tile8*>(at);
      weight.quant = tile.quants[c / 4][4 * r + c % 4] - 128;
      weight.scale = F16ToF32(tile.scale[r]);
      break;
    }
    case WeightFormat::kTile8x16: {
      const Tile8x16& tile = *reinterpret_cast<const Tile8x16*>(at);
      weight.quant = tile.quants[c / 4][4 * r + c % 4] - 128;
      weight.scale = F16ToF32(tile.scale[c / 16][r]);
      break;
    }
    case WeightFormat::kTile16F16:
      weight.value =
          F16ToF32(reinterpret_cast<const Tile16*>(at)->values[c][r]);
      return weight;
    case WeightFormat::kTile16BF16:
      weight.value =
          BF16ToF32(reinterpret_cast<const Tile16*>(at)->values[c][r]);
      return weight;
  }
  weight.value = weight.scale * weight.quant + weight.minimum;
  return weight;
}

// Half of f16's steps: relative while normal, absolute below.
constexpr float kF16Relative = 0x1.0p-11f;
constexpr float kF16Absolute = 0x1.0p-25f;

// Re-tiles and compares every weight with ggml's, within the bound that the
// type's exactness promises; ReadRow and the padding are checked on the way.
void ExpectFaithful(const GgufTensor& tensor) {
  ThreadTeam team(2);
  const auto result = RetileOwned(tensor, team);
  ASSERT_TRUE(result.ok()) << result.status().message();
  const WeightMatrix& matrix = *result;
  const FormatChoice choice = ChooseFormat(tensor.type);
  const std::vector<float> expected = DequantizedByGgml(tensor);
  std::vector<float> row_values(matrix.n_columns);

  for (uint32_t row = 0; row < matrix.n_row_tiles() * kTileRows; ++row) {
    if (row < matrix.n_rows) ReadRow(matrix, row, row_values.data());
    for (uint32_t c = 0; c < matrix.n_column_tiles() * kTileColumns; ++c) {
      const Weight actual = WeightAt(matrix, row, c);
      if (row >= matrix.n_rows || c >= matrix.n_columns) {
        ASSERT_EQ(actual.value, 0) << "padding, row " << row << ", " << c;
        continue;
      }
      const float truth = expected[size_t{row} * matrix.n_columns + c];
      ASSERT_FLOAT_EQ(row_values[c], actual.value);
      const float unit =
          std::abs(actual.minimum) + std::abs(actual.value - actual.minimum);
      // Sums of two f32 products differ in the last bit.
      float bound = 1.2e-7f * unit;
      if (choice.exactness == Exactness::kRounded) {
        bound += kF16Relative * 1.001f * unit +
                 kF16Absolute * (1 + std::abs(actual.quant));
      } else if (choice.exactness == Exactness::kRequantized) {
        bound += actual.scale / 2;
      }
      ASSERT_NEAR(actual.value, truth, bound)
          << "row " << row << ", column " << c;
    }
  }
}

TEST(RetileTest, BlocksKeepTheirValues) {
  for (const BlockType& type : BlockTypes()) {
    SCOPED_TRACE(type.name);
    ExpectFaithful(RandomBlocks(type, 512, 37).tensor);
    ExpectFaithful(QuantisedTensor(type.raw_type, type.type, 768, 16).tensor);
  }
}

TEST(RetileTest, WidthsBetweenSuperBlocksKeepTheirValues) {
  for (const BlockType& type : BlockTypes()) {
    if (ggml_blck_size(type.raw_type) > 32) continue;
    SCOPED_TRACE(type.name);
    ExpectFaithful(RandomBlocks(type, 96, 5).tensor);
  }
}

TEST(RetileTest, NumbersOf16BitsKeepTheirValues) {
  ExpectFaithful(QuantisedTensor(GGML_TYPE_F16, GgufType::kF16, 83, 21).tensor);
  ExpectFaithful(
      QuantisedTensor(GGML_TYPE_BF16, GgufType::kBF16, 83, 21).tensor);
}

TEST(RetileTest, F32IsHeldAsF16) {
  OwnedTensor f32 = NewTensor(GGML_TYPE_F32, GgufType::kF32, 70, 20);
  auto values = NormalValues(70 * 20, 0.05f);
  values[3] = 65504;  // the largest f16
  values[4] = 1e-7f;  // not a normal f16
  std::memcpy(f32.bytes.data(), values.data(), f32.bytes.size());
  ExpectFaithful(f32.tensor);
}

TEST(RetileTest, F32BeyondF16IsHeldAsBF16) {
  OwnedTensor f32 = NewTensor(GGML_TYPE_F32, GgufType::kF32, 40, 17);
  auto values = NormalValues(40 * 17, 1e5f);
  std::memcpy(f32.bytes.data(), values.data(), f32.bytes.size());
  ThreadTeam team(1);
  auto matrix = RetileOwned(f32.tensor, team);
  ASSERT_TRUE(matrix.ok());
  ASSERT_EQ(matrix->format, WeightFormat::kTile16BF16);
  for (uint32_t row = 0; row < 17; ++row) {
    for (uint32_t c = 0; c < 40; ++c) {
      const float truth = values[row * 40 + c];
      ASSERT_NEAR(WeightAt(*matrix, row, c).value, truth,
                  std::abs(truth) / 256);
    }
  }
}

// Every type of ggml that holds weights and is not read block by block.
TEST(RetileTest, OtherTypesAreRequantisedWithinHalfAStep) {
  uint32_t n_types = 0;
  for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
    const ggml_type raw_type = static_cast<ggml_type>(i);
    const std::string_view name = ggml_type_name(raw_type);
    if (!ggml_is_quantized(raw_type) ||
        ggml_get_type_traits(raw_type)->to_float == nullptr) {
      continue;
    }
    const GgufType type = GgufType::kOther;
    bool has_reader = raw_type == GGML_TYPE_Q5_1 || raw_type == GGML_TYPE_Q5_K;
    for (const BlockType& block : BlockTypes()) {
      has_reader |= block.raw_type == raw_type;
    }
    if (has_reader) continue;
    SCOPED_TRACE(name);
    // Quantising to a grid takes seconds to set up; any bytes are on the grid.
    const bool has_grid = name.starts_with("iq1") || name.starts_with("iq2") ||
                          name.starts_with("iq3");
    ExpectFaithful(has_grid ? RandomBytes(raw_type, type, 512, 18).tensor
                            : QuantisedTensor(raw_type, type, 512, 18).tensor);
    ++n_types;
  }

  EXPECT_EQ(n_types, 15u);
}

TEST(RetileTest, FiveBitsWithAMinimumAreHeldAsF16) {
  const OwnedTensor q5_1 =
      QuantisedTensor(GGML_TYPE_Q5_1, GgufType::kQ5_1, 96, 21);
  const OwnedTensor q5_k =
      QuantisedTensor(GGML_TYPE_Q5_K, GgufType::kQ5_K, 512, 21);
  EXPECT_EQ(ChooseFormat(GgufType::kQ5_1).format, WeightFormat::kTile16F16);
  EXPECT_EQ(ChooseFormat(GgufType::kQ5_K).format, WeightFormat::kTile16F16);
  ExpectFaithful(q5_1.tensor);
  ExpectFaithful(q5_k.tensor);
}

// Root mean square of what re-tiling changed, in units of the values' own.
double RelativeChange(const GgufTensor& tensor) {
  ThreadTeam team(1);
  auto matrix = RetileOwned(tensor, team);
  CHECK(matrix.ok());
  const auto expected = DequantizedByGgml(tensor);
  double squares = 0, error_squares = 0;
  for (uint32_t row = 0; row < matrix->n_rows; ++row) {
    for (uint32_t c = 0; c < matrix->n_columns; ++c) {
      const double truth = expected[size_t{row} * matrix->n_columns + c];
      const double error = WeightAt(*matrix, row, c).value - truth;
      squares += truth * truth;
      error_squares += error * error;
    }
  }
  return std::sqrt(error_squares / squares);
}

// Values on a grid of whole numbers lose no more than their scales' rounding
// to f16; steps of the peak / 127 would cost 4e-3.
TEST(RetileTest, ValuesOnAGridSurviveRequantising) {
  for (ggml_type type :
       {GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4, GGML_TYPE_TQ1_0, GGML_TYPE_TQ2_0}) {
    EXPECT_LE(
        RelativeChange(QuantisedTensor(type, GgufType::kOther, 512, 18).tensor),
        kF16Relative)
        << ggml_type_name(type);
  }
  for (ggml_type type :
       {GGML_TYPE_IQ1_S, GGML_TYPE_IQ1_M, GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS,
        GGML_TYPE_IQ2_S, GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ3_S}) {
    EXPECT_LE(
        RelativeChange(RandomBytes(type, GgufType::kOther, 512, 18).tensor),
        kF16Relative)
        << ggml_type_name(type);
  }
}

TEST(RetileTest, Q2KChangesByLessThanAThousandth) {
  EXPECT_LE(
      RelativeChange(
          QuantisedTensor(GGML_TYPE_Q2_K, GgufType::kOther, 768, 32).tensor),
      1e-3);
}

TEST(RetileTest, ZeroBlocksStayZero) {
  const OwnedTensor zeros = NewTensor(GGML_TYPE_Q5_K, GgufType::kQ5_K, 256, 16);
  ExpectFaithful(zeros.tensor);
}

TEST(RetileTest, ThreadsDoNotChangeTheTiles) {
  const OwnedTensor tensor =
      QuantisedTensor(GGML_TYPE_Q4_K, GgufType::kQ4_K, 512, 100);
  ThreadTeam one(1), three(3);
  auto a = RetileOwned(tensor.tensor, one);
  auto b = RetileOwned(tensor.tensor, three);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_EQ(a->n_bytes(), b->n_bytes());
  EXPECT_EQ(std::memcmp(a->tiles, b->tiles, a->n_bytes()), 0);
}

TEST(RetileTest, RefusesWhatIsNotFinite) {
  ThreadTeam team(1);
  for (const BlockType& type : BlockTypes()) {
    SCOPED_TRACE(type.name);
    OwnedTensor tensor = RandomBlocks(type, 512, 16);
    SetF16(&tensor, type.f16_offsets.back(),
           std::numeric_limits<float>::quiet_NaN());
    EXPECT_EQ(RetileOwned(tensor.tensor, team).status().code(),
              StatusCode::kCorrupt);
  }
  for (float bad : {std::numeric_limits<float>::quiet_NaN(),
                    std::numeric_limits<float>::infinity()}) {
    OwnedTensor f32 = NewTensor(GGML_TYPE_F32, GgufType::kF32, 40, 17);
    std::memcpy(&f32.bytes[400], &bad, sizeof(bad));
    EXPECT_EQ(RetileOwned(f32.tensor, team).status().code(),
              StatusCode::kCorrupt);
    OwnedTensor q5_1 = QuantisedTensor(GGML_TYPE_Q5_1, GgufType::kQ5_1, 64, 16);
    SetF16(&q5_1, 0, bad);
    EXPECT_EQ(RetileOwned(q5_1.tensor, team).status().code(),
              StatusCode::kCorrupt);
  }
}

// -8 d of a Q4_0 block with d = 10,000 is no f16.
TEST(RetileTest, RefusesScalesBeyondF16) {
  OwnedTensor tensor = RandomBlocks(BlockTypes()[0], 64, 16);
  SetF16(&tensor, 0, 10000);
  ThreadTeam team(1);
  EXPECT_EQ(RetileOwned(tensor.tensor, team).status().code(),
            StatusCode::kCorrupt);
}

class LoadWeightsTest : public testing::Test {
 protected:
  // Opens a random model and reads its architecture.
  void Open(const RandomModelOptions& options) {
    WriteRandomModel(folder_.File("model.gguf"), options);
    auto file = GgufFile::Open(folder_.File("model.gguf"));
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = std::move(file).value();
    auto architecture = ReadArchitecture(*file_);
    ASSERT_TRUE(architecture.ok()) << architecture.status().message();
    architecture_ = *architecture;
  }

  TempFolder folder_;
  ThreadTeam team_{2};
  std::unique_ptr<GgufFile> file_;
  Architecture architecture_;
};

TEST_F(LoadWeightsTest, FillsEveryPartOfEveryLayer) {
  RandomModelOptions options = RandomModelOf("qwen3");
  options.qkv_bias = true;
  Open(options);
  auto weights = LoadWeights(*file_, architecture_, team_);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  ASSERT_EQ(weights->layers.size(), options.n_layers);
  const uint32_t q_width = options.n_heads * options.head_dim;
  const uint32_t kv_width = options.n_kv_heads * options.head_dim;
  const LayerWeights& layer = weights->layers[1];
  EXPECT_EQ(layer.attention_norm.size(), options.n_embd);
  EXPECT_EQ(layer.ffn_norm.size(), options.n_embd);
  EXPECT_EQ(layer.q_bias.size(), q_width);
  EXPECT_EQ(layer.k_bias.size(), kv_width);
  EXPECT_EQ(layer.v_bias.size(), kv_width);
  EXPECT_EQ(layer.q_norm.size(), options.head_dim);
  EXPECT_EQ(layer.k_norm.size(), options.head_dim);
  EXPECT_EQ(layer.o.n_rows, options.n_embd);
  EXPECT_EQ(layer.o.n_columns, q_width);
  EXPECT_EQ(layer.down.n_columns, options.n_ff);
  EXPECT_EQ(&weights->output_matrix(), &weights->output);

  // A row deep in the file arrives where it belongs.
  const GgufTensor* up = file_->Find("blk.1.ffn_up.weight");
  const auto expected = DequantizedByGgml(*up);
  std::vector<float> row(options.n_embd);
  ReadRow(layer.up, 19, row.data());
  for (uint32_t c = 0; c < options.n_embd; ++c) {
    ASSERT_NEAR(row[c], expected[19 * options.n_embd + c], 1e-3);
  }
}

TEST_F(LoadWeightsTest, MatricesLieInTheOrderOfAStep) {
  for (bool tied : {false, true}) {
    RandomModelOptions options = RandomModelOf("llama");
    options.tied_output = tied;
    Open(options);
    auto weights = LoadWeights(*file_, architecture_, team_);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    const uint8_t* end = weights->tiles.data();
    const auto expect_next = [&](const WeightMatrix& matrix) {
      EXPECT_TRUE(matrix.is_contiguous());
      EXPECT_GE(matrix.tiles, end);
      EXPECT_LT(matrix.tiles, end + kBufferAlignment);
      end = matrix.row_tile(matrix.n_row_tiles());
    };
    // What is read in the same items alternates, row tile by row tile.
    const auto expect_pair = [&](const WeightMatrix& matrix,
                                 const WeightMatrix& partner) {
      EXPECT_GE(matrix.tiles, end);
      EXPECT_LT(matrix.tiles, end + kBufferAlignment);
      EXPECT_EQ(partner.tiles, matrix.tiles + matrix.row_tile_bytes());
      EXPECT_EQ(matrix.row_tile(1), partner.tiles + partner.row_tile_bytes());
      EXPECT_EQ(partner.row_tile_stride, matrix.row_tile_stride);
      end = matrix.row_tile(matrix.n_row_tiles());
    };
    for (const LayerWeights& layer : weights->layers) {
      expect_pair(layer.k, layer.v);
      expect_next(layer.q);
      expect_next(layer.o);
      expect_pair(layer.gate, layer.up);
      expect_next(layer.down);
    }
    if (!tied) expect_next(weights->output);
    expect_next(weights->token_embedding);
    EXPECT_LE(end, weights->tiles.data() + weights->tiles.size());
  }
}

TEST_F(LoadWeightsTest, TiedOutputIsTheEmbedding) {
  RandomModelOptions options = RandomModelOf("llama");
  options.tied_output = true;
  Open(options);
  auto weights = LoadWeights(*file_, architecture_, team_);
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(&weights->output_matrix(), &weights->token_embedding);
}

TEST_F(LoadWeightsTest, EstimateIsWhatIsHeld) {
  for (ggml_type type : {GGML_TYPE_Q4_1, GGML_TYPE_Q6_K, GGML_TYPE_F32}) {
    RandomModelOptions options = RandomModelOf("qwen2");
    options.matrix_type = type;
    options.vocab_size = 333;
    Open(options);
    auto weights = LoadWeights(*file_, architecture_, team_);
    ASSERT_TRUE(weights.ok());
    EXPECT_EQ(WeightBytes(*file_, architecture_), weights->n_bytes);
  }
}

// Every tensor of a model in turn, whatever its part and type.
TEST_F(LoadWeightsTest, RefusesEveryTensorThatIsNotFinite) {
  const std::string path = folder_.File("model.gguf");
  for (ggml_type type :
       {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0}) {
    RandomModelOptions options = RandomModelOf("qwen3");
    options.qkv_bias = true;
    options.n_layers = 1;
    options.matrix_type = type;
    Open(options);
    const std::vector<GgufTensor> tensors = file_->tensors();
    std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
    // The file has no gaps behind its tensors, so its length places them.
    const size_t data_end = std::filesystem::file_size(path);
    const uint8_t* mapped_end = tensors.back().data + tensors.back().n_bytes;
    for (const GgufTensor& tensor : tensors) {
      SCOPED_TRACE(tensor.name);
      const auto at = data_end - static_cast<size_t>(mapped_end - tensor.data);
      const std::string sound(reinterpret_cast<const char*>(tensor.data), 4);
      // The little end of F32 does not matter; both of its halves are NaN in
      // 16 bits, and the first is the scale of a Q8_0 block.
      const auto put = [&](std::string_view four) {
        bytes.seekp(static_cast<std::streamoff>(at));
        bytes.write(four.data(), 4).flush();
      };
      const bool in_32_bits = tensor.type == GgufType::kF32;
      for (std::string_view wrong :
           {std::string_view("\xff\xff\xff\xff", 4),  // NaN
            in_32_bits ? std::string_view("\x00\x00\x80\x7f", 4)
            : tensor.type == GgufType::kBF16
                ? std::string_view("\x80\x7f\x80\x7f", 4)
                : std::string_view("\x00\x7c\x00\x7c", 4)}) {  // infinity
        put(wrong);
        const Status status =
            LoadWeights(*file_, architecture_, team_).status();
        EXPECT_EQ(status.code(), StatusCode::kCorrupt);
        for (const std::string& part : {path, tensor.name}) {
          EXPECT_NE(status.message().find(part), std::string_view::npos)
              << status.message();
        }
      }
      put(sound);
    }
    EXPECT_TRUE(LoadWeights(*file_, architecture_, team_).ok());
  }
}

TEST_F(LoadWeightsTest, AFileTruncatedSinceItWasOpenedIsNamed) {
  RandomModelOptions options = RandomModelOf("llama");
  Open(options);
  const std::string path = folder_.File("model.gguf");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  const Status status = LoadWeights(*file_, architecture_, team_).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find(path + ": was truncated"),
            std::string_view::npos)
      << status.message();
}

TEST_F(LoadWeightsTest, NotesSayWhatChanged) {
  RandomModelOptions options = RandomModelOf("llama");
  options.matrix_type = GGML_TYPE_Q4_1;
  Open(options);
  EXPECT_TRUE(LoadWeights(*file_, architecture_, team_)->notes.empty());

  options.matrix_type = GGML_TYPE_Q2_K;
  Open(options);
  EXPECT_EQ(LoadWeights(*file_, architecture_, team_)->notes,
            std::vector<std::string>{
                "Q2_K re-quantised to 8 bits with a scale per 16 weights: 16 "
                "tensors"});

  options.matrix_type = GGML_TYPE_Q5_K;
  Open(options);
  EXPECT_EQ(LoadWeights(*file_, architecture_, team_)->notes,
            std::vector<std::string>{
                "Q5_K held as F16 (relative error up to 1/2048): 16 tensors"});
}

}  // namespace
}  // namespace lkv
