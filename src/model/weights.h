// Weights: the matrices of a model in the kernels' tile formats, re-tiled from
// the GGUF file once at load. After that the file's mapping is not read again.
//
// Thread rule: immutable after LoadWeights.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "gguf/gguf_file.h"
#include "kernels/tiles.h"
#include "lookaheadkv/status.h"
#include "model/architecture.h"

namespace lkv {

// A matrix [n_rows, n_columns] as row tiles of column tiles (kernels/tiles.h).
struct WeightMatrix {
  WeightFormat format = WeightFormat::kTile4;
  uint32_t n_rows = 0;
  uint32_t n_columns = 0;
  AlignedBuffer<uint8_t> tiles;

  size_t n_row_tiles() const { return (n_rows + kTileRows - 1) / kTileRows; }
  size_t n_column_tiles() const {
    return (n_columns + kTileColumns - 1) / kTileColumns;
  }
};

// The format that carries a GGUF type, and whether the type's values survive
// the trip exactly, to f16 rounding of their scales (2^-11), or re-quantised.
enum class Fidelity { kExact, kScaleRounded, kRequantized };
struct FormatChoice {
  WeightFormat format;
  Fidelity fidelity;
};
FormatChoice ChooseFormat(GgufType type);

// Re-tiles a 2-D tensor of any GGUF type.
WeightMatrix Retile(const GgufTensor& tensor);

// out [n_columns] = row `row` of the matrix, as its tiles hold it.
void ReadRow(const WeightMatrix& matrix, uint32_t row, float* out);

struct LayerWeights {
  std::vector<float> attention_norm, ffn_norm;  // [n_embd]
  std::vector<float> q_bias, k_bias, v_bias;    // empty unless qkv_bias
  std::vector<float> q_norm, k_norm;            // [head_dim], unless !qk_norm
  WeightMatrix q, k, v, o, gate, up, down;
};

struct Weights {
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;  // [n_embd]
  WeightMatrix token_embedding;    // [vocab_size, n_embd]
  WeightMatrix output;             // empty when tied: the embedding serves
  uint64_t n_bytes = 0;            // of all tiles and vectors
  std::vector<std::string> notes;  // one line per kind of type re-quantised

  const WeightMatrix& output_matrix() const {
    return output.n_rows > 0 ? output : token_embedding;
  }
};

// Bytes that LoadWeights will hold, before any is allocated.
uint64_t EstimateWeightBytes(const GgufFile& file);

// Loads all matrices, shape-checked against the architecture; drops the file's
// pages tensor by tensor, so that peak memory is the tiles plus one tensor.
// `progress` (may be empty) gets the share done, 0..1.
Result<Weights> LoadWeights(const GgufFile& file,
                            const Architecture& architecture,
                            const std::function<void(double)>& progress);

}  // namespace lkv
