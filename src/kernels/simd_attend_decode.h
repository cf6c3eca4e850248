// Decode attention of the vector sets: one query token, all query heads of a
// KV head. Include after avx2_simd.h or avx512_simd.h.
//
// Bound by memory, so everything serves one aim, to read each page once and
// early: all heads of the group use a converted load while it is in a
// register, pages are prefetched through the page list (a walk over keys, then
// values, of scattered pages defeats the hardware prefetcher: without it 1.4
// to 2 times slower), and the softmax looks at its maximum once in 256 slots.
#pragma once

#include "kernels/simd_exp.h"
#include "kernels/simd_pages.h"

namespace lkv {
namespace {

// Query heads that share a load; larger groups are taken in parts.
constexpr int kMaxGroup = 8;

// Pages between the one being read and the one being prefetched: the same place
// of the next chunk, and into the second-level cache. The first one's miss
// registers (24 on Zen 4) bound a thread to half of what it can stream: 14 GB/s
// against 23 GB/s; a quarter of this distance gives 18 GB/s.
constexpr uint32_t kPrefetchPages = kChunkPages;

// One chunk of a run: pages [first, first + n_pages) of it.
struct Chunk {
  uint32_t first_page;
  uint32_t n_pages;
  uint32_t n_slots;
  uint32_t last_page;  // of the run
};

// The loops over arrays of registers are unrolled by request: GCC 12 otherwise
// unrolls them too late to see that the arrays need no memory, and stores every
// sum in every round (510 instead of 270 cycles per page).

// Logits of kPages pages from page `page` of the run on, for kGroup heads:
// logits[g * stride + slot of these pages].
template <Half kHalf, int kGroup, int kPages>
inline void PageLogits(const PageRun& run, const Chunk& chunk, uint32_t page,
                       const float* q, float* logits, size_t stride) {
  // Enough independent sums to hide the latency of a multiply-add.
  constexpr int kSplit =
      2 * kGroup * kPages * kPageVectors <= Simd::kMaxSums ? 2 : 1;
  const uint16_t* keys[kPages];
  const char* ahead[kPages];
#pragma GCC unroll 8
  for (int i = 0; i < kPages; ++i) {
    keys[i] = KeysOf(run, page + i);
    ahead[i] = reinterpret_cast<const char*>(
        KeysOf(run, AtMost(page + i + kPrefetchPages, chunk.last_page)));
  }
  Simd::F32 sums[kSplit][kPages][kPageVectors][kGroup];
  for (auto& split : sums) {
    for (auto& of_page : split) {
      for (auto& vectors : of_page) {
        for (Simd::F32& sum : vectors) sum = Simd::Zero();
      }
    }
  }
  // Two dimensions of a page's keys are one cache line.
  for (uint32_t d = 0; d < run.head_dim; d += 2) {
#pragma GCC unroll 8
    for (int i = 0; i < kPages; ++i) {
      _mm_prefetch(ahead[i] + d * kPageSlots * sizeof(uint16_t), _MM_HINT_T1);
    }
#pragma GCC unroll 8
    for (int s = 0; s < 2; ++s) {
      Simd::F32 k[kPages][kPageVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kPages; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kPageVectors; ++v) {
          k[i][v] = LoadHalf<kHalf>(keys[i] + (d + s) * kPageSlots +
                                    v * Simd::kLanes);
        }
      }
#pragma GCC unroll 8
      for (int g = 0; g < kGroup; ++g) {
        const Simd::F32 q_of_d = Simd::Set(q[g * run.head_dim + d + s]);
#pragma GCC unroll 8
        for (int i = 0; i < kPages; ++i) {
#pragma GCC unroll 8
          for (int v = 0; v < kPageVectors; ++v) {
            Simd::F32& sum = sums[s % kSplit][i][v][g];
            sum = Simd::MulAdd(k[i][v], q_of_d, sum);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < kGroup; ++g) {
#pragma GCC unroll 8
    for (int i = 0; i < kPages; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kPageVectors; ++v) {
        Simd::F32 sum = sums[0][i][v][g];
        if constexpr (kSplit == 2) sum = Simd::Add(sum, sums[1][i][v][g]);
        Simd::Store(logits + g * stride + i * kPageSlots + v * Simd::kLanes,
                    sum);
      }
    }
  }
}

// Adds p times the values of a chunk to kVectors vectors of every head's
// output, those from `column` on.
template <Half kHalf, int kGroup, int kVectors>
inline void AddValues(const PageRun& run, const Chunk& chunk, const float* p,
                      size_t p_stride, uint32_t column, float* o) {
  Simd::F32 sums[kGroup][kVectors];
#pragma GCC unroll 8
  for (int g = 0; g < kGroup; ++g) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      sums[g][c] = Simd::Load(o + g * run.head_dim + column + c * Simd::kLanes);
    }
  }
  for (uint32_t i = 0; i < chunk.n_pages; ++i) {
    uint32_t page = chunk.first_page + i;
    const uint16_t* values = ValuesOf(run, page) + column;
    const uint16_t* ahead =
        ValuesOf(run, AtMost(page + kPrefetchPages, chunk.last_page)) + column;
    // Slots past the end may hold anything, and 0 times NaN is NaN.
    uint32_t n_slots = AtMost(chunk.n_slots - i * kPageSlots, kPageSlots);
    const float* p_of_page = p + i * kPageSlots;
    for (uint32_t slot = 0; slot < n_slots; ++slot) {
      const size_t row = size_t{slot} * run.head_dim;
      for (size_t b = 0; b < kVectors * Simd::kLanes * sizeof(uint16_t);
           b += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(ahead + row) + b,
                     _MM_HINT_T1);
      }
      Simd::F32 v[kVectors];
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        v[c] = LoadHalf<kHalf>(values + row + c * Simd::kLanes);
      }
#pragma GCC unroll 8
      for (int g = 0; g < kGroup; ++g) {
        const Simd::F32 weight = Simd::Set(p_of_page[g * p_stride + slot]);
#pragma GCC unroll 8
        for (int c = 0; c < kVectors; ++c) {
          sums[g][c] = Simd::MulAdd(v[c], weight, sums[g][c]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < kGroup; ++g) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      Simd::Store(o + g * run.head_dim + column + c * Simd::kLanes, sums[g][c]);
    }
  }
}

// AddValues() for the whole output, in parts of as many vectors (8, 4, 2 or 1)
// as registers hold for this group.
template <Half kHalf, int kGroup>
inline void AddAllValues(const PageRun& run, const Chunk& chunk, const float* p,
                         size_t p_stride, float* o) {
  constexpr int kMaxVectors = Simd::kMaxSums / kGroup;
  uint32_t column = 0;
  if constexpr (kMaxVectors >= 8) {
    for (; column + 8 * Simd::kLanes <= run.head_dim;
         column += 8 * Simd::kLanes) {
      AddValues<kHalf, kGroup, 8>(run, chunk, p, p_stride, column, o);
    }
  }
  if constexpr (kMaxVectors >= 4) {
    for (; column + 4 * Simd::kLanes <= run.head_dim;
         column += 4 * Simd::kLanes) {
      AddValues<kHalf, kGroup, 4>(run, chunk, p, p_stride, column, o);
    }
  }
  if constexpr (kMaxVectors >= 2) {
    for (; column + 2 * Simd::kLanes <= run.head_dim;
         column += 2 * Simd::kLanes) {
      AddValues<kHalf, kGroup, 2>(run, chunk, p, p_stride, column, o);
    }
  }
  for (; column < run.head_dim; column += Simd::kLanes) {
    AddValues<kHalf, kGroup, 1>(run, chunk, p, p_stride, column, o);
  }
}

template <Half kHalf, int kGroup>
void DecodeGroup(const AttendDecodeArgs& args) {
  const PageRun& run = args.run;
  const uint32_t head_dim = run.head_dim;
  const uint32_t n_pages = PagesFor(run.n_slots);
  alignas(64) float local_p[kGroup * kAttendChunkSlots];
  RunningSoftmax softmax[kGroup];
  Fill(args.o, kGroup * head_dim, 0.0f);

  for (uint32_t first = 0; first < n_pages; first += kChunkPages) {
    const uint32_t first_slot = first * kPageSlots;
    const Chunk chunk = {
        .first_page = first,
        .n_pages = AtMost(n_pages - first, kChunkPages),
        .n_slots = AtMost(run.n_slots - first_slot, kAttendChunkSlots),
        .last_page = n_pages - 1};
    float* p = args.p != nullptr ? args.p + first_slot : local_p;
    const size_t p_stride =
        args.p != nullptr ? args.p_stride : kAttendChunkSlots;
    uint32_t i = 0;
    for (; i + 2 <= chunk.n_pages; i += 2) {
      PageLogits<kHalf, kGroup, 2>(run, chunk, first + i, args.q,
                                   p + i * kPageSlots, p_stride);
    }
    if (i < chunk.n_pages) {
      PageLogits<kHalf, kGroup, 1>(run, chunk, first + i, args.q,
                                   p + i * kPageSlots, p_stride);
    }
    for (int g = 0; g < kGroup; ++g) {
      float rescale = softmax[g].AddChunk(p + g * p_stride, chunk.n_slots,
                                          chunk.n_pages * kPageSlots);
      if (rescale != 1.0f) Multiply(args.o + g * head_dim, head_dim, rescale);
      if (args.p != nullptr) {
        args.p_max[g * args.p_max_stride + first / kChunkPages] =
            softmax[g].max;
      }
    }
    AddAllValues<kHalf, kGroup>(run, chunk, p, p_stride, args.o);
  }
  for (int g = 0; g < kGroup; ++g) {
    args.m[g] = softmax[g].max;
    args.l[g] = Simd::SumOf(softmax[g].sum);
  }
}

// DecodeGroup() for args.group <= kMax.
template <Half kHalf, int kMax>
inline void DecodeGroupOf(const AttendDecodeArgs& args) {
  if constexpr (kMax > 1) {
    if (args.group < kMax) {
      DecodeGroupOf<kHalf, kMax - 1>(args);
      return;
    }
  }
  DecodeGroup<kHalf, kMax>(args);
}

template <Half kHalf>
void AttendDecode(const AttendDecodeArgs& args) {
  AttendDecodeArgs part = args;
  for (uint32_t g = 0; g < args.group; g += kMaxGroup) {
    part.group = AtMost(args.group - g, kMaxGroup);
    part.q = args.q + size_t{g} * args.run.head_dim;
    part.o = args.o + size_t{g} * args.run.head_dim;
    part.m = args.m + g;
    part.l = args.l + g;
    if (args.p != nullptr) {
      part.p = args.p + g * args.p_stride;
      part.p_max = args.p_max + g * args.p_max_stride;
    }
    DecodeGroupOf<kHalf, kMaxGroup>(part);
  }
}

}  // namespace
}  // namespace lkv
