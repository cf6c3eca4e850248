// Shared by the attention tests: a lane of random pages and attention in
// double precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_sets.h"

namespace lkv {

inline double HalfValue(uint32_t type, uint16_t half) {
  return type == 0 ? F16ToF32(half) : BF16ToF32(half);
}

// Pages of one lane in shuffled order, filled with random keys and values.
struct TestLane {
  uint32_t type;  // KvType
  uint32_t head_dim;
  std::vector<uint32_t> pages;
  std::vector<uint16_t> pool;

  TestLane(uint32_t type, uint32_t head_dim, uint32_t n_slots, Random* random)
      : type(type), head_dim(head_dim) {
    uint32_t n_pages = (n_slots + kPageSlots - 1) / kPageSlots;
    for (uint32_t i = 0; i < n_pages; ++i) pages.push_back(i);
    for (uint32_t i = n_pages; i > 1; --i) {
      std::swap(pages[i - 1], pages[random->Below(i)]);
    }
    pool.resize(n_pages * page_halves());
    for (uint16_t& half : pool) half = Half(random->Uniform(-1, 1));
  }

  size_t page_halves() const { return size_t{2} * kPageSlots * head_dim; }
  uint16_t Half(float x) const {
    return type == 0 ? F32ToF16(x) : F32ToBF16(x);
  }

  uint16_t& KeyHalf(uint32_t slot, uint32_t d) {
    return pool[pages[slot / kPageSlots] * page_halves() + d * kPageSlots +
                slot % kPageSlots];
  }
  uint16_t& ValueHalf(uint32_t slot, uint32_t d) {
    return pool[pages[slot / kPageSlots] * page_halves() +
                kPageSlots * head_dim + slot % kPageSlots * head_dim + d];
  }
  double Key(uint32_t slot, uint32_t d) const {
    return HalfValue(type, const_cast<TestLane*>(this)->KeyHalf(slot, d));
  }
  double Value(uint32_t slot, uint32_t d) const {
    return HalfValue(type, const_cast<TestLane*>(this)->ValueHalf(slot, d));
  }
  void SetKey(uint32_t slot, float x) {
    for (uint32_t d = 0; d < head_dim; ++d) KeyHalf(slot, d) = Half(x);
  }
  // Makes every slot from `first` to the end of the pages NaN.
  void PoisonFrom(uint32_t first) {
    for (uint32_t slot = first; slot < pages.size() * kPageSlots; ++slot) {
      for (uint32_t d = 0; d < head_dim; ++d) {
        KeyHalf(slot, d) = Half(std::numeric_limits<float>::quiet_NaN());
        ValueHalf(slot, d) = KeyHalf(slot, d);
      }
    }
  }

  PageRun Run(uint32_t n_slots) const {
    return {.pool = reinterpret_cast<const uint8_t*>(pool.data()),
            .page_bytes = page_halves() * sizeof(uint16_t),
            .pages = pages.data(),
            .n_slots = n_slots,
            .head_dim = head_dim};
  }
};

// Random queries [n, head_dim], scaled by 1 / sqrt(head_dim), large enough
// that the weights differ by orders of magnitude.
inline std::vector<float> ScaledQueries(uint32_t n, uint32_t head_dim,
                                        Random* random) {
  std::vector<float> q(size_t{n} * head_dim);
  float scale = 4.0f / std::sqrt(static_cast<float>(head_dim));
  for (float& x : q) x = random->Uniform(-1, 1) * scale;
  return q;
}

// Attention of one query over the first n_slots slots, in double precision.
struct ExactAttention {
  double max_logit = -std::numeric_limits<double>::infinity();
  double sum = 0;  // of exp(logit - max_logit)
  std::vector<double> weights;
  std::vector<double> output;

  ExactAttention(const TestLane& lane, uint32_t n_slots, const float* q)
      : weights(n_slots), output(lane.head_dim) {
    for (uint32_t i = 0; i < n_slots; ++i) {
      for (uint32_t d = 0; d < lane.head_dim; ++d) {
        weights[i] += lane.Key(i, d) * q[d];
      }
      max_logit = std::fmax(max_logit, weights[i]);
    }
    for (double& weight : weights) {
      weight = std::exp(weight - max_logit);
      sum += weight;
    }
    for (uint32_t i = 0; i < n_slots; ++i) {
      weights[i] /= sum;
      for (uint32_t d = 0; d < lane.head_dim; ++d) {
        output[d] += weights[i] * lane.Value(i, d);
      }
    }
  }
};

}  // namespace lkv
