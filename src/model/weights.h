// Weights: the matrices of a model in the kernels' tile formats, re-tiled from
// the GGUF file once at load. After that the file's mapping is not read again.
//
// Thread rule: immutable after LoadWeights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_team.h"
#include "base/types.h"
#include "gguf/gguf_file.h"
#include "kernels/tiles.h"
#include "lookaheadkv/status.h"
#include "model/architecture.h"

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

// How a tensor's values survive the trip into tiles.
enum class Exactness {
  kExact,        // the same numbers
  kRounded,      // values or scales rounded to f16: relative error at most
                 // 2^-11 while they are normal f16 numbers, above 6e-5
  kRequantized,  // 8 bit anew: error at most half a step, max / 128 per 16
};
struct FormatChoice {
  WeightFormat format;
  Exactness exactness;
};
// The format that carries a GGUF type. F32 is carried as F16, or as BF16 if a
// value is beyond F16's range; both take the same bytes. So are Q5_1 and Q5_K:
// five bits with a minimum fit neither tile4 nor, well enough, tile8x16 (mean
// KL 2e-3 on SmolLM2 at best, where F16 has 1e-6).
FormatChoice ChooseFormat(GgufType type);

// Bytes of a 2-D tensor's tiles.
uint64_t RetiledBytes(const GgufTensor& tensor);

// Re-tiles a 2-D tensor of any GGUF type into `tiles`, on the team's threads.
// Requires RetiledBytes(tensor) zeroed bytes, aligned to kBufferAlignment, that
// outlive the matrix. kCorrupt when a value or scale is not finite, or a scale
// leaves the range of f16.
Result<WeightMatrix> Retile(const GgufTensor& tensor, std::span<uint8_t> tiles,
                            ThreadTeam& team);

// out [n_columns] = row `row` of the matrix, as its tiles hold it.
// Requires row < n_rows. 1 us per 1,000 columns.
void ReadRow(const WeightMatrix& matrix, uint32_t row, float* out);

struct LayerWeights {
  std::vector<float> attention_norm, ffn_norm;  // [n_embd]
  std::vector<float> q_bias, k_bias, v_bias;    // empty unless qkv_bias
  std::vector<float> q_norm, k_norm;            // [head_dim], unless !qk_norm
  WeightMatrix q, k, v, o, gate, up, down;
};

struct Weights {
  // Of all matrices, one behind the other in the order that a step reads them:
  // a decode step is one walk through 2 MiB pages (base/aligned_buffer.h).
  AlignedBuffer<uint8_t> tiles;
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;  // [n_embd]
  WeightMatrix token_embedding;    // [vocab_size, n_embd]
  WeightMatrix output;             // empty when tied: the embedding serves
  uint64_t n_bytes = 0;            // of all tiles and vectors
  std::vector<std::string> notes;  // one line per type that is not exact

  const WeightMatrix& output_matrix() const {
    return output.n_rows > 0 ? output : token_embedding;
  }
};

// Bytes that LoadWeights will hold, before any is allocated.
uint64_t EstimateWeightBytes(const GgufFile& file);

// Loads all matrices on the team's threads; drops the file's pages tensor by
// tensor, so that peak memory is the tiles plus one tensor. Requires the
// architecture that ReadArchitecture gave for this file.
Result<Weights> LoadWeights(const GgufFile& file,
                            const Architecture& architecture, ThreadTeam& team);

}  // namespace lkv
