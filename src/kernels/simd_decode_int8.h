// Decode attention over pages of int8, one chunk at a time: logits, then
// values. Include after avx2_simd.h or avx512_simd.h.
//
// Both are sums of products of 16-bit integers, two at a time: the query as 16
// bit per head, the probabilities as 15 bit per head and chunk. Their rounding
// (1.5e-5 of the largest) is far below that of the stored bytes (4e-3), and the
// loops take half the instructions that f32 would.
#pragma once

#include "kernels/simd_decode_halves.h"
#include "kernels/simd_int8_pages.h"

namespace lkv {
namespace {

constexpr float kLargestWord = 32767;

// kMaxHeadDim products of a query and a key, kAttendChunkSlots of a probability
// and a value fit 32 bits.
static_assert(int64_t{32767} * 127 * kMaxHeadDim < (int64_t{1} << 31));
static_assert(int64_t{32767} * 127 * kAttendChunkSlots < (int64_t{1} << 31));

// factor * words [n] = x [n] * scale [n], rounded to 1 / 32767 of the largest.
// scale may be nullptr = 1. n is a multiple of kLanes. Returns the factor.
inline float ToWords(const float* x, const float* scale, uint32_t n,
                     int16_t* words) {
  const auto scaled = [&](uint32_t i) {
    const Simd::F32 value = Simd::Load(x + i);
    return scale != nullptr ? Simd::Mul(value, Simd::Load(scale + i)) : value;
  };
  Simd::F32 top = Simd::Zero();
  for (uint32_t i = 0; i < n; i += Simd::kLanes) {
    top = Simd::Max(top, Simd::Abs(scaled(i)));
  }
  const float largest = Simd::MaxOf(top);
  const float inverse = largest > kSmallestInt8Row ? kLargestWord / largest : 0;
  const Simd::F32 all = Simd::Set(inverse);
  for (uint32_t i = 0; i < n; i += Simd::kLanes) {
    Simd::StoreWords(words + i, Simd::Round(Simd::Mul(scaled(i), all)));
  }
  return largest / kLargestWord;
}

inline float Dot(const float* a, const float* b, uint32_t n) {
  Simd::F32 sum = Simd::Zero();
  for (uint32_t i = 0; i < n; i += Simd::kLanes) {
    sum = Simd::MulAdd(Simd::Load(a + i), Simd::Load(b + i), sum);
  }
  return Simd::SumOf(sum);
}

template <int kGroup>
struct IntegerQueries {
  alignas(64) int16_t words[kGroup * kMaxHeadDim];  // [kGroup, head_dim]
  float factors[kGroup];
  float offsets[kGroup];  // logit of the run's key_offset

  IntegerQueries(const PageRun& run, const float* q) {
    for (int g = 0; g < kGroup; ++g, q += run.head_dim) {
      factors[g] = ToWords(q, nullptr, run.head_dim, words + g * run.head_dim);
      offsets[g] =
          run.key_offset != nullptr ? Dot(q, run.key_offset, run.head_dim) : 0;
    }
  }
};

// The loops over arrays of registers are unrolled by request, as in
// simd_decode_halves.h.

// Logits of kPages pages from page `first` of the chunk on, for kGroup heads:
// logits[g * stride + slot of these pages].
template <int kGroup, int kPages>
inline void Int8PageLogits(const PageRun& run, const Chunk& chunk,
                           uint32_t first, const IntegerQueries<kGroup>& q,
                           float* logits, size_t stride) {
  // Enough independent sums to hide the latency of a multiplication.
  constexpr int kSplit =
      2 * kGroup * kPages * kPageVectors <= Simd::kMaxSums ? 2 : 1;
  Int8Page pages[kPages];
  const uint8_t* ahead[kPages];
#pragma GCC unroll 8
  for (int i = 0; i < kPages; ++i) {
    pages[i] = Int8PageOf(run, chunk.first_page + first + i);
    ahead[i] = chunk.ahead[first + i];
    _mm_prefetch(ahead[i] + Int8ScalesAt(run.head_dim), _MM_HINT_T1);
  }
  Simd::I32 sums[kSplit][kPages][kPageVectors][kGroup];
  for (auto& split : sums) {
    for (auto& of_page : split) {
      for (auto& vectors : of_page) {
        for (Simd::I32& sum : vectors) sum = Simd::ZeroIntegers();
      }
    }
  }
  // Four dimensions of a page's keys are one cache line.
  for (uint32_t d = 0; d < run.head_dim; d += 4) {
#pragma GCC unroll 8
    for (int i = 0; i < kPages; ++i) {
      _mm_prefetch(ahead[i] + d * kPageSlots, _MM_HINT_T1);
    }
#pragma GCC unroll 8
    for (int s = 0; s < 2; ++s) {
      Simd::I32 k[kPages][kPageVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kPages; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kPageVectors; ++v) {
          k[i][v] = Simd::LoadBytesAsWords(
              pages[i].keys + (d + 2 * s) * kPageSlots + 2 * v * Simd::kLanes);
        }
      }
#pragma GCC unroll 8
      for (int g = 0; g < kGroup; ++g) {
        const Simd::I32 q_of_d =
            Simd::SetPair(&q.words[g * run.head_dim + d + 2 * s]);
#pragma GCC unroll 8
        for (int i = 0; i < kPages; ++i) {
#pragma GCC unroll 8
          for (int v = 0; v < kPageVectors; ++v) {
            Simd::I32& sum = sums[s % kSplit][i][v][g];
            sum = Simd::DotPairs(sum, k[i][v], q_of_d);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kPages; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kPageVectors; ++v) {
      const Simd::F32 scales =
          Simd::LoadBF16(pages[i].key_scales + v * Simd::kLanes);
#pragma GCC unroll 8
      for (int g = 0; g < kGroup; ++g) {
        Simd::F32 sum = Simd::FromIntegers(sums[0][i][v][g]);
        if constexpr (kSplit == 2) {
          sum = Simd::Add(sum, Simd::FromIntegers(sums[1][i][v][g]));
        }
        Simd::Store(
            logits + g * stride + i * kPageSlots + v * Simd::kLanes,
            Simd::MulAdd(sum, Simd::Mul(scales, Simd::Set(q.factors[g])),
                         Simd::Set(q.offsets[g])));
      }
    }
  }
}

// What multiplies the values of a chunk: probability times the value's scale.
template <int kGroup>
struct IntegerWeights {
  alignas(64) int16_t words[kGroup][kAttendChunkSlots];
  float factors[kGroup];

  IntegerWeights(const PageRun& run, const Chunk& chunk, const float* p,
                 size_t p_stride) {
    alignas(64) float scales[kAttendChunkSlots];
    const uint32_t n_padded = chunk.n_pages * kPageSlots;
    for (uint32_t i = 0; i < n_padded; i += Simd::kLanes) {
      const Int8Page page = Int8PageOf(run, chunk.first_page + i / kPageSlots);
      Simd::Store(scales + i,
                  Simd::LoadBF16(page.value_scales + i % kPageSlots));
    }
    // Slots past the end may hold anything, and 0 times NaN is NaN.
    for (uint32_t i = chunk.n_slots; i < n_padded; ++i) scales[i] = 0;
    for (int g = 0; g < kGroup; ++g) {
      factors[g] = ToWords(p + g * p_stride, scales, n_padded, words[g]);
    }
  }
};

// Adds a chunk's weighted values to kVectors vectors of every head's output,
// those from `column` on.
template <int kGroup, int kVectors>
inline void Int8AddValues(const PageRun& run, const Chunk& chunk,
                          const IntegerWeights<kGroup>& weights,
                          uint32_t column, float* o) {
  Simd::I32 sums[kGroup][kVectors];
#pragma GCC unroll 8
  for (int g = 0; g < kGroup; ++g) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) sums[g][c] = Simd::ZeroIntegers();
  }
  for (uint32_t i = 0; i < chunk.n_pages; ++i) {
    const int8_t* values =
        Int8PageOf(run, chunk.first_page + i).values + 2 * column;
    const uint8_t* ahead =
        chunk.ahead[i] + Int8ValueAt(run.head_dim, 0, column);
    for (uint32_t pair = 0; pair < kPageSlots / 2; ++pair) {
      const size_t row = size_t{pair} * 2 * run.head_dim;
      for (size_t b = 0; b < 2 * kVectors * Simd::kLanes; b += 64) {
        _mm_prefetch(ahead + row + b, _MM_HINT_T1);
      }
      Simd::I32 v[kVectors];
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        v[c] = Simd::LoadBytesAsWords(values + row + 2 * c * Simd::kLanes);
      }
#pragma GCC unroll 8
      for (int g = 0; g < kGroup; ++g) {
        const Simd::I32 weight =
            Simd::SetPair(&weights.words[g][i * kPageSlots + 2 * pair]);
#pragma GCC unroll 8
        for (int c = 0; c < kVectors; ++c) {
          sums[g][c] = Simd::DotPairs(sums[g][c], v[c], weight);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < kGroup; ++g) {
    const Simd::F32 factor = Simd::Set(weights.factors[g]);
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      float* to = o + g * run.head_dim + column + c * Simd::kLanes;
      Simd::Store(to, Simd::MulAdd(Simd::FromIntegers(sums[g][c]), factor,
                                   Simd::Load(to)));
    }
  }
}

// A chunk may begin with f16 pages; ChunkReader<kF16> takes those.
template <int kGroup>
class ChunkReader<KvType::kInt8, kGroup> {
 public:
  ChunkReader(const PageRun& run, const float* q)
      : run_(run),
        exact_run_(ExactPages(run)),
        exact_(exact_run_, q),
        q_(run, q) {}

  void Logits(const Chunk& chunk, float* logits, size_t stride) const {
    const Parts parts = Split(chunk);
    if (parts.exact.n_pages > 0) exact_.Logits(parts.exact, logits, stride);
    logits += parts.exact.n_pages * kPageSlots;
    ForPages(parts.rest.n_pages, [&]<int kPages>(uint32_t i) {
      Int8PageLogits<kGroup, kPages>(run_, parts.rest, i, q_,
                                     logits + i * kPageSlots, stride);
    });
  }

  void AddValues(const Chunk& chunk, const float* p, size_t p_stride,
                 float* o) const {
    const Parts parts = Split(chunk);
    if (parts.exact.n_pages > 0) {
      exact_.AddValues(parts.exact, p, p_stride, o);
    }
    if (parts.rest.n_pages == 0) return;
    const IntegerWeights<kGroup> weights(
        run_, parts.rest, p + parts.exact.n_pages * kPageSlots, p_stride);
    ForColumns<Simd::kMaxSums / kGroup>(
        run_.head_dim, [&]<int kVectors>(uint32_t column) {
          Int8AddValues<kGroup, kVectors>(run_, parts.rest, weights, column, o);
        });
  }

 private:
  struct Parts {
    Chunk exact;
    Chunk rest;
  };

  Parts Split(const Chunk& chunk) const {
    const uint32_t n = ExactPagesIn(run_, chunk.first_page, chunk.n_pages);
    const uint32_t n_slots = AtMost(n * kPageSlots, chunk.n_slots);
    return {.exact = {.first_page = chunk.first_page,
                      .n_pages = n,
                      .n_slots = n_slots,
                      .ahead = chunk.ahead},
            .rest = {.first_page = chunk.first_page + n,
                     .n_pages = chunk.n_pages - n,
                     .n_slots = chunk.n_slots - n_slots,
                     .ahead = chunk.ahead + n}};
  }

  const PageRun& run_;
  const PageRun exact_run_;
  const ChunkReader<KvType::kF16, kGroup> exact_;
  const IntegerQueries<kGroup> q_;
};

}  // namespace
}  // namespace lkv
