// What the matrix products of the vector sets have in common: how they read
// ahead. The products themselves are written for each set, because the
// dot-product instructions of AVX2 and AVX-512 have different limits.
#pragma once

#include "kernels/kernel_table.h"

namespace lkv {
namespace {

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
