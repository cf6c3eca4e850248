// Masses of pages from estimated logits, of the vector sets. Include after
// avx2_simd.h or avx512_simd.h.
#pragma once

#include "kernels/simd_pages.h"

namespace lkv {
namespace {

// Vectors that hold one value of each slot of a group.
constexpr int kGroupVectors = kColdGroupPages * kPageVectors;

inline float LargestOf(const float* logits, uint32_t n_groups) {
  Simd::F32 tops[kColdGroupPages];
  for (Simd::F32& top : tops) top = Simd::Set(kMinusInfinity);
  for (uint32_t i = 0; i < n_groups * kGroupVectors; i += kColdGroupPages) {
#pragma GCC unroll 8
    for (uint32_t j = 0; j < kColdGroupPages; ++j) {
      tops[j] = Simd::Max(tops[j], Simd::Load(logits + (i + j) * Simd::kLanes));
    }
  }
  return Simd::MaxOf(
      Simd::Max(Simd::Max(tops[0], tops[1]), Simd::Max(tops[2], tops[3])));
}

inline void PageSums(const PageSumsArgs& args) {
  for (uint32_t g = 0; g < args.group; ++g) {
    const float* logits = args.logits + g * args.logit_stride;
    const float max = LargestOf(logits, args.n_groups);
    args.m[g * args.m_stride] = max;
    float* sums = args.sums + g * args.sum_stride;
    for (uint32_t i = 0; i < args.n_groups; ++i) {
      Simd::F32 of_pages[kColdGroupPages];
#pragma GCC unroll 8
      for (uint32_t page = 0; page < kColdGroupPages; ++page) {
        of_pages[page] = Simd::Zero();
#pragma GCC unroll 8
        for (int v = 0; v < kPageVectors; ++v, logits += Simd::kLanes) {
          const Simd::F32 p =
              RoughExp(Simd::Sub(Simd::Load(logits), Simd::Set(max)));
          of_pages[page] = Simd::Add(of_pages[page], p);
        }
      }
      alignas(64) float of_group[Simd::kLanes];
      Simd::Store(of_group, Simd::SumsOf<kColdGroupPages>(of_pages));
      __builtin_memcpy(sums, of_group, kColdGroupPages * sizeof(float));
      sums += kColdGroupPages;
    }
  }
}

// Turns the largest logits of runs into what multiplies their sums, for masses
// of one head.
inline void MakeFactors(const PageMassesArgs& args, uint32_t g, float* m,
                        uint32_t n_runs) {
  float max = args.other_m[g];
  for (uint32_t run = 0; run < n_runs; ++run) max = m[run] > max ? m[run] : max;
  for (uint32_t run = 0; run < n_runs; run += Simd::kLanes) {
    Simd::Store(m + run, Exp(Simd::Sub(Simd::Load(m + run), Simd::Set(max))));
  }
  const float* const sums = args.sums + g * args.sum_stride;
  Simd::F32 all = Simd::Zero();
  for (uint32_t page = 0; page < args.n_pages; page += Simd::kLanes) {
    const Simd::F32 counts =
        Simd::Add(Simd::Load(args.mass + page), Simd::Set(1));
    all = Simd::MulAdd(Simd::Mul(counts, Simd::Load(sums + page)),
                       Simd::Set(m[page / args.run_pages]), all);
  }
  const float other = args.other_l[g] * ExpOfOne<Exp>(args.other_m[g] - max);
  Multiply(m, n_runs, 1 / (Simd::SumOf(all) + other));
}

inline void PageMasses(const PageMassesArgs& args) {
  const uint32_t n_runs = (args.n_pages + args.run_pages - 1) / args.run_pages;
  for (uint32_t g = 0; g < args.group; ++g) {
    MakeFactors(args, g, args.m + g * args.m_stride, n_runs);
  }
  for (uint32_t page = 0; page < args.n_pages; page += Simd::kLanes) {
    Simd::F32 most = Simd::Zero();
    for (uint32_t g = 0; g < args.group; ++g) {
      most = Simd::Max(
          most,
          Simd::Mul(
              Simd::Load(args.sums + g * args.sum_stride + page),
              Simd::Set(args.m[g * args.m_stride + page / args.run_pages])));
    }
    // 0 becomes the mass, -1 remains.
    const Simd::F32 before = Simd::Load(args.mass + page);
    Simd::Store(args.mass + page,
                Simd::MulAdd(most, Simd::Add(before, Simd::Set(1)), before));
  }
}

}  // namespace
}  // namespace lkv
