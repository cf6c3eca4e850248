// Writing slots, statistics of values and attention mass for the vector sets.
// Include after avx2_simd.h or avx512_simd.h.
#pragma once

#include "kernels/int8_page.h"
#include "kernels/simd_exp.h"
#include "kernels/simd_int8_pages.h"
#include "kernels/simd_pages.h"

namespace lkv {
namespace {

template <KvType kType>
void WriteSlot(uint8_t* page, uint32_t slot, uint32_t head_dim, const float* k,
               const float* v) {
  uint16_t* keys = reinterpret_cast<uint16_t*>(page);
  uint16_t* values =
      keys + size_t{kPageSlots} * head_dim + size_t{slot} * head_dim;
  for (uint32_t d = 0; d < head_dim; d += Simd::kLanes) {
    uint16_t converted[Simd::kLanes];
    StoreHalf<kType>(converted, Simd::Load(k + d));
    for (int i = 0; i < Simd::kLanes; ++i) {
      keys[size_t{d + i} * kPageSlots + slot] = converted[i];
    }
    StoreHalf<kType>(values + d, Simd::Load(v + d));
  }
}

// One row as integers in [-127, 127] times the bf16 scale returned.
inline uint16_t QuantizeRow(const float* x, uint32_t n, int8_t* integers) {
  Simd::F32 top = Simd::Zero();
  for (uint32_t i = 0; i < n; i += Simd::kLanes) {
    top = Simd::Max(top, Simd::Abs(Simd::Load(x + i)));
  }
  const Int8Scale scale = Int8ScaleOf(Simd::MaxOf(top));
  const Simd::F32 inverse = Simd::Set(scale.inverse);
  for (uint32_t i = 0; i < n; i += Simd::kLanes) {
    Simd::StoreBytes(integers + i,
                     Simd::Round(Simd::Mul(Simd::Load(x + i), inverse)));
  }
  return scale.bf16;
}

// Values of dimensions d .. d + kLanes of one slot.
template <KvType kType>
inline Simd::F32 LoadValues(const uint8_t* page, uint32_t head_dim,
                            uint32_t slot, uint32_t d) {
  if constexpr (kType == KvType::kInt8) {
    const ValuePair pair =
        LoadInt8Values(Int8PageAt(page, head_dim), head_dim, slot / 2, d);
    return slot % 2 == 0 ? pair.even : pair.odd;
  } else {
    return LoadHalf<kType>(reinterpret_cast<const uint16_t*>(page) +
                           size_t{kPageSlots + slot} * head_dim + d);
  }
}

template <KvType kType>
void ValueStats(const uint8_t* page, uint32_t first, uint32_t last,
                uint32_t head_dim, const float* mean, float* norms,
                float* distances) {
  for (uint32_t slot = first; slot < last; ++slot) {
    Simd::F32 norm = Simd::Zero();
    Simd::F32 distance = Simd::Zero();
    for (uint32_t d = 0; d < head_dim; d += Simd::kLanes) {
      Simd::F32 v = LoadValues<kType>(page, head_dim, slot, d);
      Simd::F32 difference = Simd::Sub(v, Simd::Load(mean + d));
      norm = Simd::MulAdd(v, v, norm);
      distance = Simd::MulAdd(difference, difference, distance);
    }
    norms[slot - first] = __builtin_sqrtf(Simd::SumOf(norm));
    distances[slot - first] = __builtin_sqrtf(Simd::SumOf(distance));
  }
}

// Heads whose factors are held in registers at a time.
constexpr uint32_t kReducedHeads = 8;

// Adds up to kReducedHeads heads from `head` on to the masses of one chunk.
inline void ReduceHeads(const ReduceMassArgs& args, uint32_t head,
                        uint32_t chunk) {
  const uint32_t n_heads = AtMost(args.group - head, kReducedHeads);
  Simd::F32 factors[kReducedHeads];
  for (uint32_t i = 0; i < n_heads; ++i) {
    const uint32_t g = head + i;
    const float p_max = args.p_max[g * args.p_max_stride + chunk];
    factors[i] = Simd::Set(ExpOfOne(p_max - args.m[g]) / args.l[g]);
  }
  const Simd::F32 share = Simd::Set(1.0f / static_cast<float>(args.group));
  const uint32_t first = chunk * kAttendChunkSlots;
  const uint32_t n_padded = PagesFor(args.n_slots) * kPageSlots;
  const uint32_t last = AtMost(first + kAttendChunkSlots, n_padded);
  const float* p = args.p + head * args.p_stride;
  for (uint32_t i = first; i < last; i += Simd::kLanes) {
    Simd::F32 max = Simd::Zero();
    Simd::F32 mean = Simd::Zero();
    if (head > 0) {
      max = Simd::Load(args.mass_max + i);
      mean = Simd::Load(args.mass_mean + i);
    }
    Simd::F32 sum = Simd::Zero();
    for (uint32_t h = 0; h < n_heads; ++h) {
      Simd::F32 mass =
          Simd::Mul(Simd::Load(p + h * args.p_stride + i), factors[h]);
      max = Simd::Max(max, mass);
      sum = Simd::Add(sum, mass);
    }
    Simd::Store(args.mass_max + i, max);
    Simd::Store(args.mass_mean + i, Simd::MulAdd(sum, share, mean));
  }
}

inline void ReduceMass(const ReduceMassArgs& args) {
  for (uint32_t chunk = 0; chunk * kAttendChunkSlots < args.n_slots; ++chunk) {
    for (uint32_t head = 0; head < args.group; head += kReducedHeads) {
      ReduceHeads(args, head, chunk);
    }
  }
}

}  // namespace
}  // namespace lkv
