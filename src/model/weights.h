// Weights: the matrices of a model in the kernels' tile formats, re-tiled from
// the GGUF file once at load. After that the file's mapping is not read again.
//
// Thread rule: immutable after LoadWeights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_team.h"
#include "gguf/gguf_file.h"
#include "lookaheadkv/status.h"
#include "model/architecture.h"
#include "model/weight_matrix.h"

namespace lkv {

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
uint64_t WeightBytes(const GgufFile& file, const Architecture& architecture);

// Loads all matrices on the team's threads; drops the file's pages tensor by
// tensor, so that peak memory is the tiles plus one tensor. Requires the
// architecture that ReadArchitecture gave for this file.
Result<Weights> LoadWeights(const GgufFile& file,
                            const Architecture& architecture, ThreadTeam& team);

}  // namespace lkv
