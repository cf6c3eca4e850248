// Decode attention over pages of 16-bit elements, one chunk at a time: logits,
// then values. Include after avx2_simd.h or avx512_simd.h.
#pragma once

#include "kernels/simd_pages.h"

namespace lkv {
namespace {

// The loops over arrays of registers are unrolled by request: GCC 12 otherwise
// unrolls them too late to see that the arrays need no memory, and stores every
// sum in every round (510 instead of 270 cycles per page).

// Logits of kPages pages from page `first` of the chunk on, for kGroup heads:
// logits[g * stride + slot of these pages].
template <KvType kType, int kGroup, int kPages>
inline void PageLogits(const PageRun& run, const Chunk& chunk, uint32_t first,
                       const float* q, float* logits, size_t stride) {
  // Enough independent sums to hide the latency of a multiply-add.
  constexpr int kSplit =
      2 * kGroup * kPages * kPageVectors <= Simd::kMaxSums ? 2 : 1;
  const uint16_t* keys[kPages];
  const uint8_t* ahead[kPages];
#pragma GCC unroll 8
  for (int i = 0; i < kPages; ++i) {
    keys[i] = KeysOf(run, chunk.first_page + first + i);
    ahead[i] = chunk.ahead[first + i];
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
          k[i][v] = LoadHalf<kType>(keys[i] + (d + s) * kPageSlots +
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
// output, those from `column` on. A function of its own, because GCC spills
// less: 6 % of the instructions of bf16 with AVX2.
template <KvType kType, int kGroup, int kVectors>
[[gnu::noinline]] void AddValues(const PageRun& run, const Chunk& chunk,
                                 const float* p, size_t p_stride,
                                 uint32_t column, float* o) {
  Simd::F32 sums[kGroup][kVectors];
#pragma GCC unroll 8
  for (int g = 0; g < kGroup; ++g) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      sums[g][c] = Simd::Load(o + g * run.head_dim + column + c * Simd::kLanes);
    }
  }
  for (uint32_t i = 0; i < chunk.n_pages; ++i) {
    const uint16_t* values = ValuesOf(run, chunk.first_page + i) + column;
    const uint8_t* ahead =
        chunk.ahead[i] +
        (size_t{kPageSlots} * run.head_dim + column) * sizeof(uint16_t);
    // Slots past the end may hold anything, and 0 times NaN is NaN.
    uint32_t n_slots = AtMost(chunk.n_slots - i * kPageSlots, kPageSlots);
    const float* p_of_page = p + i * kPageSlots;
    for (uint32_t slot = 0; slot < n_slots; ++slot) {
      const size_t row = size_t{slot} * run.head_dim;
      for (size_t b = 0; b < kVectors * Simd::kLanes * sizeof(uint16_t);
           b += 64) {
        _mm_prefetch(ahead + row * sizeof(uint16_t) + b, _MM_HINT_T1);
      }
      Simd::F32 v[kVectors];
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        v[c] = LoadHalf<kType>(values + row + c * Simd::kLanes);
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

// One lane's pages to one query group: the two products of attention, a chunk
// at a time.
template <KvType kType, int kGroup>
class ChunkReader {
 public:
  ChunkReader(const PageRun& run, const float* q) : run_(run), q_(q) {}

  // logits[g * stride + slot of the chunk].
  void Logits(const Chunk& chunk, float* logits, size_t stride) const {
    ForPages(chunk.n_pages, [&]<int kPages>(uint32_t i) {
      PageLogits<kType, kGroup, kPages>(run_, chunk, i, q_,
                                        logits + i * kPageSlots, stride);
    });
  }

  // Adds p times the chunk's values to o [kGroup, head_dim].
  void AddValues(const Chunk& chunk, const float* p, size_t p_stride,
                 float* o) const {
    ForColumns<Simd::kMaxSums / kGroup>(
        run_.head_dim, [&]<int kVectors>(uint32_t column) {
          lkv::AddValues<kType, kGroup, kVectors>(run_, chunk, p, p_stride,
                                                  column, o);
        });
  }

 private:
  const PageRun run_;
  const float* const q_;
};

}  // namespace
}  // namespace lkv
