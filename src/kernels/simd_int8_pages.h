// Pages of int8 as the vector sets see them. Include after avx2_simd.h or
// avx512_simd.h.
#pragma once

#include "kernels/int8_page.h"
#include "kernels/simd_pages.h"

namespace lkv {
namespace {

struct Int8Page {
  const int8_t* keys;            // [head_dim / 2][kPageSlots][2]
  const int8_t* values;          // [kPageSlots / 2][head_dim][2]
  const uint16_t* key_scales;    // bf16 [kPageSlots]
  const uint16_t* value_scales;  // bf16 [kPageSlots]
};

inline Int8Page Int8PageAt(const uint8_t* page, uint32_t head_dim) {
  const int8_t* keys = reinterpret_cast<const int8_t*>(page);
  const uint16_t* scales =
      reinterpret_cast<const uint16_t*>(page + Int8ScalesAt(head_dim));
  return {keys, keys + Int8ValueAt(head_dim, 0, 0), scales,
          scales + kPageSlots};
}

inline Int8Page Int8PageOf(const PageRun& run, uint32_t page) {
  return Int8PageAt(run.pages[page], run.head_dim);
}

// Pages of [first, first + n) that hold f16.
inline uint32_t ExactPagesIn(const PageRun& run, uint32_t first, uint32_t n) {
  return first < run.n_exact_pages ? AtMost(run.n_exact_pages - first, n) : 0;
}

// The f16 pages at the start of an int8 run, as a run.
inline PageRun ExactPages(const PageRun& run) {
  return {.pages = run.pages,
          .n_slots = AtMost(run.n_slots, run.n_exact_pages * kPageSlots),
          .head_dim = run.head_dim};
}

// Keys as f32 [head_dim][kPageSlots], offset (unless nullptr) added.
inline void Int8KeysToF32(const Int8Page& page, uint32_t head_dim,
                          const float* offset, float* to) {
  Simd::F32 scales[kPageVectors];
  for (int v = 0; v < kPageVectors; ++v) {
    scales[v] = Simd::LoadBF16(page.key_scales + v * Simd::kLanes);
  }
  for (uint32_t d = 0; d < head_dim; d += 2) {
    const Simd::F32 even_offset = Simd::Set(offset != nullptr ? offset[d] : 0);
    const Simd::F32 odd_offset =
        Simd::Set(offset != nullptr ? offset[d + 1] : 0);
    for (int v = 0; v < kPageVectors; ++v) {
      const uint32_t slot = v * Simd::kLanes;
      const Simd::I32 pairs =
          Simd::LoadBytesAsWords(page.keys + d * kPageSlots + 2 * slot);
      Simd::Store(to + d * kPageSlots + slot,
                  Simd::MulAdd(Simd::EvenWords(pairs), scales[v], even_offset));
      Simd::Store(to + (d + 1) * kPageSlots + slot,
                  Simd::MulAdd(Simd::OddWords(pairs), scales[v], odd_offset));
    }
  }
}

// Values of dimensions d .. d + kLanes of the slots 2 * pair and 2 * pair + 1.
struct ValuePair {
  Simd::F32 even;
  Simd::F32 odd;
};

inline ValuePair LoadInt8Values(const Int8Page& page, uint32_t head_dim,
                                uint32_t pair, uint32_t d) {
  const Simd::I32 words =
      Simd::LoadBytesAsWords(page.values + (size_t{pair} * head_dim + d) * 2);
  const auto scale = [&](uint32_t slot) {
    const uint32_t bits = uint32_t{page.value_scales[slot]} << 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof(value));
    return Simd::Set(value);
  };
  return {Simd::Mul(Simd::EvenWords(words), scale(2 * pair)),
          Simd::Mul(Simd::OddWords(words), scale(2 * pair + 1))};
}

// Values of the first n_slots slots as f32 [n_slots][head_dim].
inline void Int8ValuesToF32(const Int8Page& page, uint32_t head_dim,
                            uint32_t n_slots, float* to) {
  for (uint32_t slot = 0; slot < n_slots; slot += 2) {
    for (uint32_t d = 0; d < head_dim; d += Simd::kLanes) {
      const ValuePair v = LoadInt8Values(page, head_dim, slot / 2, d);
      Simd::Store(to + slot * head_dim + d, v.even);
      if (slot + 1 < n_slots) {
        Simd::Store(to + (slot + 1) * head_dim + d, v.odd);
      }
    }
  }
}

}  // namespace
}  // namespace lkv
