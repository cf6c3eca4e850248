// StepPart: what one sequence has in a step, as attention sees it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cache/cached_sequence.h"

namespace lkv {

// The part of a step that belongs to one sequence.
struct StepPart {
  CachedSequence* sequence = nullptr;
  uint32_t first_pos = 0;  // of the new tokens
  uint32_t n_tokens = 0;   // new tokens, already counted in the page tables
  size_t first_row = 0;    // of the step's token rows
};

// What attention multiplies by keys: the queries [n_queries, n_heads, head_dim]
// (`stride` floats from one query to the next) over the root of the head size.
// `n_heads` of each query are taken.
inline void ScaleQueries(const float* q, size_t stride, uint32_t n_queries,
                         uint32_t n_heads, uint32_t head_dim, float* scaled) {
  const float scale = 1 / std::sqrt(static_cast<float>(head_dim));
  const uint32_t n = n_heads * head_dim;
  for (uint32_t i = 0; i < n_queries; ++i, q += stride, scaled += n) {
    for (uint32_t c = 0; c < n; ++c) scaled[c] = scale * q[c];
  }
}

}  // namespace lkv
