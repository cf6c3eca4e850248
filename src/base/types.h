// The ids and shapes that every layer above speaks of. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lkv {

enum class PageId : uint32_t {};
enum class SequenceId : uint32_t {};

// Element type of cached keys and values.
enum class KvType : uint8_t { kF16, kBF16, kInt8 };
inline constexpr size_t kKvTypes = 3;

// Tokens in one page of 16-bit elements: at head_dim 64 a page is 4 KiB, the
// smallest unit that can be read in any order at streaming speed.
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
  uint32_t n_lanes() const { return n_layers * n_kv_heads; }
  uint32_t LaneOf(uint32_t layer, uint32_t kv_head) const {
    return layer * n_kv_heads + kv_head;
  }
  // Payload bytes of one page of 16-bit elements: K [head_dim][16], then
  // V [16][head_dim].
  size_t page_bytes() const {
    return size_t{2} * kPageTokens * head_dim * sizeof(uint16_t);
  }
  // Payload bytes of one token over all lanes.
  size_t bytes_per_token() const {
    return size_t{2} * n_lanes() * head_dim * sizeof(uint16_t);
  }
};

}  // namespace lkv
