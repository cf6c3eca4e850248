// Rope: rotary position embedding, the angles by which the pairs of a query or
// key head turn with position.
//
// Pair i of a head turns by position * frequency[i]. Everything the scaling
// methods do (linear, YaRN, the frequency factors of Llama 3) is folded into
// the frequencies and one magnitude at construction, so asking for a position
// costs one cosine and sine per pair: about 1 us at 32 pairs, once per token
// and step, not per layer. Nothing is tabulated, so no context length is a
// limit and no memory grows with it.
//
// Method: RoFormer (arXiv:2104.09864), YaRN (arXiv:2309.00071).
// Thread rule: immutable after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/rotation.h"
#include "model/architecture.h"

namespace lkv {

class RopeTable {
 public:
  // Requires options.n_rotated even and frequency_factors empty or of
  // n_rotated / 2 elements (ReadArchitecture checks both).
  explicit RopeTable(const RopeOptions& options);

  uint32_t n_pairs() const {
    return static_cast<uint32_t>(frequencies_.size());
  }

  // How a cache may turn queries back.
  Rotation rotation() const { return {order_, frequencies_}; }

  // cosine, sine [n_pairs()]: of the pairs' angles at `position`, times the
  // magnitude. Angles are computed in double: in float, position 100,000 would
  // already be off by 1/100 rad.
  void Angles(uint32_t position, float* cosine, float* sine) const;

 private:
  RopeOrder order_;
  std::vector<double> frequencies_;  // rad per position
  double magnitude_;                 // YaRN lengthens queries and keys
};

// Turns the leading 2 * n_pairs elements of one head in place. The readable
// form of the kernels' rope_normal and rope_neox.
void RotateHead(RopeOrder order, const float* cosine, const float* sine,
                uint32_t n_pairs, float* head);

}  // namespace lkv
