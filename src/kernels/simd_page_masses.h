// Masses of pages from estimated logits, of the vector sets. Include after
// avx2_simd.h or avx512_simd.h.
#pragma once

#include "kernels/simd_pages.h"

namespace lkv {
namespace {

// The largest of a page's logits, lane by lane.
inline Simd::F32 PageTop(const float* logits) {
  Simd::F32 top = Simd::Load(logits);
  for (int v = 1; v < kPageVectors; ++v) {
    top = Simd::Max(top, Simd::Load(logits + v * Simd::kLanes));
  }
  return top;
}

inline float PageSum(const float* logits, Simd::F32 max) {
  Simd::F32 sum = Simd::Zero();
  for (int v = 0; v < kPageVectors; ++v) {
    sum = Simd::Add(sum,
                    Exp(Simd::Sub(Simd::Load(logits + v * Simd::kLanes), max)));
  }
  return Simd::SumOf(sum);
}

inline void PageMasses(const PageMassesArgs& args) {
  for (uint32_t g = 0; g < args.group; ++g) {
    const float* logits = args.logits + g * args.logit_stride;
    Simd::F32 top = Simd::Set(args.other_m[g]);
    for (uint32_t page = 0; page < args.n_pages; ++page) {
      if (args.mass[page] < 0) continue;
      top = Simd::Max(top, PageTop(logits + page * kPageSlots));
    }
    const float max = Simd::MaxOf(top);
    const Simd::F32 max_of_all = Simd::Set(max);
    float sum = args.other_l[g] * ExpOfOne<Exp>(args.other_m[g] - max);
    for (uint32_t page = 0; page < args.n_pages; ++page) {
      if (args.mass[page] < 0) continue;
      args.page_sums[page] = PageSum(logits + page * kPageSlots, max_of_all);
      sum += args.page_sums[page];
    }
    const float inverse = 1 / sum;
    for (uint32_t page = 0; page < args.n_pages; ++page) {
      if (args.mass[page] < 0) continue;
      const float mass = args.page_sums[page] * inverse;
      if (mass > args.mass[page]) args.mass[page] = mass;
    }
  }
}

}  // namespace
}  // namespace lkv
