// The ids and shapes that every layer above speaks of. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lkv {

enum class SequenceId : uint32_t {};

// Element type of cached keys and values.
enum class KvType : uint8_t { kF16, kBF16, kInt8 };
inline constexpr size_t kKvTypes = 3;

// Tokens in one page. At head_dim 64 a page of 16-bit elements is 4 KiB, a page
// of int8 half of that. (The same number for all types: positions, eviction and
// policies do not depend on the type.)
inline constexpr uint32_t kPageTokens = 16;

// Widest head of any supported model.
inline constexpr uint32_t kMaxHeadDim = 256;

// n / divisor, rounded up. Requires n + divisor - 1 to fit T.
template <typename T>
constexpr T CeilDiv(T n, std::type_identity_t<T> divisor) {
  return (n + divisor - 1) / divisor;
}

// Pages that n_tokens of one lane fill, the last one perhaps in part.
template <typename T>
constexpr T PagesOf(T n_tokens) {
  return CeilDiv(n_tokens, T{kPageTokens});
}

// Payload bytes of one page of one lane; layouts in kernels/kernel_table.h.
// int8 rows have a 16-bit scale each.
constexpr size_t KvPageBytes(KvType type, uint32_t head_dim) {
  const size_t row_bytes = type == KvType::kInt8 ? head_dim + sizeof(uint16_t)
                                                 : head_dim * sizeof(uint16_t);
  return size_t{2} * kPageTokens * row_bytes;
}

// Which elements of a head RoPE turns together.
enum class RopeOrder : uint8_t {
  kNormal,  // pairs (2i, 2i+1)
  kNeox,    // pairs (i, i + n/2)
};

// A half-open range of positions.
struct PositionRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// What a model's attention looks like to a cache.
struct KvShape {
  uint32_t n_layers = 0;
  uint32_t n_kv_heads = 0;
  uint32_t group = 0;  // query heads that share one KV head
  uint32_t head_dim = 0;

  uint32_t n_heads() const { return n_kv_heads * group; }
  // Lanes of one sequence: one per (layer, KV head), numbered layer-major.
  constexpr uint32_t n_lanes() const { return n_layers * n_kv_heads; }
  uint32_t LaneOf(uint32_t layer, uint32_t kv_head) const {
    return layer * n_kv_heads + kv_head;
  }
  // Payload bytes of one page.
  constexpr size_t page_bytes(KvType type) const {
    return KvPageBytes(type, head_dim);
  }
  // Payload bytes of one token over all lanes.
  constexpr size_t bytes_per_token(KvType type) const {
    return page_bytes(type) / kPageTokens * n_lanes();
  }
};

}  // namespace lkv
