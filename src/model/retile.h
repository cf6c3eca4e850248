// Re-tiling: from the rows of a GGUF tensor to the tiles that kernels stream.
#pragma once

#include <cstdint>

#include "base/thread_team.h"
#include "gguf/gguf_file.h"
#include "kernels/tiles.h"
#include "lookaheadkv/status.h"
#include "model/weight_matrix.h"

namespace lkv {

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

// Bytes of one row of a 2-D tensor's tiles, and of all.
uint64_t RowTileBytes(const GgufTensor& tensor);
uint64_t RetiledBytes(const GgufTensor& tensor);

// Re-tiles a 2-D tensor of any GGUF type into `tiles`, on the team's threads:
// row tile i to byte i * row_tile_stride. Requires zeroed bytes that outlive
// the matrix and row_tile_stride >= RowTileBytes(tensor). kCorrupt when a value
// or scale is not finite, or a scale leaves the range of f16.
Result<WeightMatrix> Retile(const GgufTensor& tensor, uint8_t* tiles,
                            size_t row_tile_stride, ThreadTeam& team);

}  // namespace lkv
