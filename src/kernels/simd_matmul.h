// What the matrix products of the vector sets have in common: how they read
// activations. The products themselves are written for each set, because the
// dot-product instructions of AVX2 and AVX-512 have different limits.
#pragma once

#include "kernels/kernel_table.h"

namespace lkv {
namespace {

// Quantised activations of one token, at one tile of 32 columns.
struct TokenBlock {
  const int8_t* high;
  const int8_t* low;
  float scale;
  const float* sums;  // two, 16 columns each
};

template <bool kHasLow>
inline TokenBlock BlockOf(const QuantizedRows& x, size_t t, size_t b) {
  const size_t column = t * x.stride + b * kTileColumns;
  return {x.high + column, kHasLow ? x.low + column : nullptr,
          x.scale[column / 32], x.sums + column / 16};
}

// Where prefetches that run past the end of the tiles go on.
struct ReadAhead {
  const char* end;
  ptrdiff_t jump;  // from `end` to what is read next

  template <typename Tile>
  static ReadAhead Of(const MatmulArgs& args) {
    const char* end =
        reinterpret_cast<const char*>(static_cast<const Tile*>(args.tiles) +
                                      args.row_tile_end * args.n_column_tiles);
    const char* next = static_cast<const char*>(args.next);
    return {end, next != nullptr ? next - end : 0};
  }

  // What is read n_bytes after `tile`.
  const char* Address(const void* tile, size_t n_bytes) const {
    const char* ahead = static_cast<const char*>(tile) + n_bytes;
    return ahead >= end ? ahead + jump : ahead;
  }
};

}  // namespace
}  // namespace lkv
