// Shared by the attention tests: a lane of random pages and attention in
// double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_sets.h"

namespace lkv {

// Pages of one lane in shuffled order, filled with random keys and values. One
// of int8 begins with pages of f16, which lie elsewhere.
struct TestLane {
  KvType type;
  uint32_t head_dim;
  std::vector<uint32_t> pages;
  std::vector<uint8_t> pool;
  std::vector<uint16_t> exact_pool;
  mutable std::vector<const uint8_t*> addresses;  // of pages, set by Run
  std::vector<float> key_offset;
  uint32_t n_exact_pages;

  TestLane(KvType type, uint32_t head_dim, uint32_t n_slots, Random* random,
           uint32_t n_exact_pages = 1)
      : type(type), head_dim(head_dim), n_exact_pages(n_exact_pages) {
    uint32_t n_pages = (n_slots + kPageSlots - 1) / kPageSlots;
    for (uint32_t i = 0; i < n_pages; ++i) pages.push_back(i);
    for (uint32_t i = n_pages; i > 1; --i) {
      std::swap(pages[i - 1], pages[random->Below(i)]);
    }
    pool.resize(n_pages * page_bytes());
    if (is_int8()) {
      exact_pool.resize(n_pages * page_halves());
      for (uint32_t d = 0; d < head_dim; ++d) {
        key_offset.push_back(random->Uniform(-1, 1));
      }
    }
    for (uint32_t slot = 0; slot < n_pages * kPageSlots; ++slot) {
      if (!HasHalves(slot)) {
        KeyScale(slot) = F32ToBF16(random->Uniform(0.5f, 1) / 127);
        ValueScale(slot) = F32ToBF16(random->Uniform(0.5f, 1) / 127);
      }
      for (uint32_t d = 0; d < head_dim; ++d) {
        if (HasHalves(slot)) {
          KeyHalf(slot, d) = Half(random->Uniform(-1, 1));
          ValueHalf(slot, d) = Half(random->Uniform(-1, 1));
        } else {
          KeyInteger(slot, d) = static_cast<int8_t>(random->Below(255) - 127);
          ValueInteger(slot, d) = static_cast<int8_t>(random->Below(255) - 127);
        }
      }
    }
  }

  size_t type_index() const { return static_cast<size_t>(type); }
  bool is_int8() const { return type == KvType::kInt8; }
  bool HasHalves(uint32_t slot) const {
    return !is_int8() || slot / kPageSlots < n_exact_pages;
  }
  size_t page_halves() const { return size_t{2} * kPageSlots * head_dim; }
  size_t page_bytes() const { return KvPageBytes(type, head_dim); }
  uint16_t Half(float x) const {
    return type == KvType::kBF16 ? F32ToBF16(x) : F32ToF16(x);
  }
  float HalfValue(uint16_t half) const {
    return type == KvType::kBF16 ? BF16ToF32(half) : F16ToF32(half);
  }

  uint8_t* PageBytes(uint32_t slot) {
    return pool.data() + pages[slot / kPageSlots] * page_bytes();
  }
  uint16_t* Halves(uint32_t slot) {
    return is_int8() ? &exact_pool[pages[slot / kPageSlots] * page_halves()]
                     : reinterpret_cast<uint16_t*>(PageBytes(slot));
  }
  uint16_t& KeyHalf(uint32_t slot, uint32_t d) {
    return Halves(slot)[d * kPageSlots + slot % kPageSlots];
  }
  uint16_t& ValueHalf(uint32_t slot, uint32_t d) {
    return Halves(slot)[(kPageSlots + slot % kPageSlots) * head_dim + d];
  }
  int8_t& KeyInteger(uint32_t slot, uint32_t d) {
    return reinterpret_cast<int8_t*>(
        PageBytes(slot))[(d / 2 * kPageSlots + slot % kPageSlots) * 2 + d % 2];
  }
  int8_t& ValueInteger(uint32_t slot, uint32_t d) {
    return reinterpret_cast<int8_t*>(
        PageBytes(slot))[kPageSlots * head_dim +
                         (slot % kPageSlots / 2 * head_dim + d) * 2 + slot % 2];
  }
  uint16_t& KeyScale(uint32_t slot) {
    return reinterpret_cast<uint16_t*>(PageBytes(slot) +
                                       page_halves())[slot % kPageSlots];
  }
  uint16_t& ValueScale(uint32_t slot) {
    return *(&KeyScale(slot) + kPageSlots);
  }

  double Key(uint32_t slot, uint32_t d) const {
    TestLane* self = const_cast<TestLane*>(this);
    if (HasHalves(slot)) return HalfValue(self->KeyHalf(slot, d));
    return double{BF16ToF32(self->KeyScale(slot))} * self->KeyInteger(slot, d) +
           key_offset[d];
  }
  double Value(uint32_t slot, uint32_t d) const {
    TestLane* self = const_cast<TestLane*>(this);
    if (HasHalves(slot)) return HalfValue(self->ValueHalf(slot, d));
    return double{BF16ToF32(self->ValueScale(slot))} *
           self->ValueInteger(slot, d);
  }
  // Makes all elements of a slot's key x. Requires 16-bit pages.
  void SetKey(uint32_t slot, float x) {
    for (uint32_t d = 0; d < head_dim; ++d) KeyHalf(slot, d) = Half(x);
  }
  // Makes every slot from `first` to the end of the pages NaN; of int8, what
  // comes nearest.
  void PoisonFrom(uint32_t first) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (uint32_t slot = first; slot < pages.size() * kPageSlots; ++slot) {
      if (!HasHalves(slot)) {
        KeyScale(slot) = ValueScale(slot) = F32ToBF16(nan);
      }
      for (uint32_t d = 0; d < head_dim; ++d) {
        if (HasHalves(slot)) {
          KeyHalf(slot, d) = ValueHalf(slot, d) = Half(nan);
        } else {
          KeyInteger(slot, d) = ValueInteger(slot, d) = -128;
        }
      }
    }
  }

  // Of the first n_slots slots; lists the pages of all.
  PageRun Run(uint32_t n_slots) const {
    TestLane* self = const_cast<TestLane*>(this);
    addresses.resize(pages.size());
    for (uint32_t i = 0; i < pages.size(); ++i) {
      const uint32_t slot = i * kPageSlots;
      addresses[i] = HasHalves(slot)
                         ? reinterpret_cast<uint8_t*>(self->Halves(slot))
                         : self->PageBytes(slot);
    }
    return {.pages = addresses.data(),
            .n_slots = n_slots,
            .head_dim = head_dim,
            .n_exact_pages =
                is_int8() ? std::min(n_exact_pages, PagesOf(n_slots)) : 0,
            .key_offset = is_int8() ? key_offset.data() : nullptr};
  }

  // How far a set may be from double precision: in the vector sets queries and
  // weights are words where pages are integers.
  double tolerance(const KernelTable& set) const {
    return is_int8() && set.name != std::string("scalar") ? 2e-4 : 1e-5;
  }
};

inline constexpr KvType kAllKvTypes[] = {KvType::kF16, KvType::kBF16,
                                         KvType::kInt8};
static_assert(std::size(kAllKvTypes) == kKvTypes);

// Random queries [n, head_dim], scaled by 1 / sqrt(head_dim), large enough
// that the weights differ by orders of magnitude.
inline std::vector<float> ScaledQueries(uint32_t n, uint32_t head_dim,
                                        Random* random) {
  std::vector<float> q(size_t{n} * head_dim);
  float scale = 4.0f / std::sqrt(static_cast<float>(head_dim));
  for (float& x : q) x = random->Uniform(-1, 1) * scale;
  return q;
}

// The logit of a slot of a lane that has Key(slot, d).
template <typename Lane>
double LogitOf(const Lane& lane, uint32_t slot, const float* q) {
  double logit = 0;
  for (uint32_t d = 0; d < lane.head_dim; ++d)
    logit += lane.Key(slot, d) * q[d];
  return logit;
}

// Attention of one query over the first n_slots slots of a lane that has
// head_dim and Value(slot, d) and that LogitOf takes, in double precision.
struct ExactAttention {
  double max_logit = -std::numeric_limits<double>::infinity();
  double sum = 0;  // of exp(logit - max_logit)
  std::vector<double> weights;
  std::vector<double> output;

  template <typename Lane>
  ExactAttention(const Lane& lane, uint32_t n_slots, const float* q)
      : weights(n_slots), output(lane.head_dim) {
    for (uint32_t i = 0; i < n_slots; ++i) {
      weights[i] = LogitOf(lane, i, q);
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
