// Pages as the vector sets see them. Include after avx2_simd.h or
// avx512_simd.h.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd_exp.h"

namespace lkv {
namespace {

// Vectors that hold one value of each slot of a page.
constexpr int kPageVectors = kPageSlots / Simd::kLanes;
constexpr uint32_t kChunkPages = kAttendChunkSlots / kPageSlots;

template <KvType kType>
inline Simd::F32 LoadHalf(const uint16_t* x) {
  if constexpr (kType == KvType::kF16) {
    return Simd::LoadF16(x);
  } else {
    return Simd::LoadBF16(x);
  }
}

template <KvType kType>
inline void StoreHalf(uint16_t* to, Simd::F32 x) {
  if constexpr (kType == KvType::kF16) {
    Simd::StoreF16(to, x);
  } else {
    Simd::StoreBF16(to, x);
  }
}

inline const uint16_t* KeysOf(const PageRun& run, uint32_t page) {
  return reinterpret_cast<const uint16_t*>(run.pages[page]);
}

inline const uint16_t* ValuesOf(const PageRun& run, uint32_t page) {
  return KeysOf(run, page) + size_t{kPageSlots} * run.head_dim;
}

inline uint32_t AtMost(uint32_t x, uint32_t limit) {
  return x < limit ? x : limit;
}

inline uint32_t PagesFor(uint32_t n_slots) {
  return (n_slots + kPageSlots - 1) / kPageSlots;
}

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
  // [n_pages] Page to be prefetched while page i of the chunk is read.
  const uint8_t* const* ahead;
};

// The pages kPrefetchPages behind a chunk's own (in a shorter run, as many as
// it has), in this run and on in the next one; where there are none, a page
// that is in the cache.
struct PagesAhead {
  const uint8_t* address[kChunkPages];

  PagesAhead(const PageRun& run, const PageRun* next, uint32_t first_page) {
    const uint32_t n_pages = PagesFor(run.n_slots);
    const uint32_t n_next = next != nullptr ? PagesFor(next->n_slots) : 0;
    const uint32_t distance = AtMost(n_pages, kPrefetchPages);
    for (uint32_t i = 0; i < kChunkPages; ++i) {
      const uint32_t page = first_page + i + distance;
      if (page < n_pages) {
        address[i] = run.pages[page];
      } else if (page - n_pages < n_next) {
        address[i] = next->pages[page - n_pages];
      } else {
        address[i] = run.pages[n_pages - 1];
      }
    }
  }
};

// Calls fn.operator()<kPages>(first page, counted from 0) for n_pages pages,
// two at a time.
template <typename Fn>
inline void ForPages(uint32_t n_pages, Fn fn) {
  uint32_t i = 0;
  for (; i + 2 <= n_pages; i += 2) fn.template operator()<2>(i);
  if (i < n_pages) fn.template operator()<1>(i);
}

// Calls fn.operator()<kVectors>(first column) for the columns of a head, as
// many vectors (8, 4, 2 or 1, at most kMax) at a time as fit.
template <int kMax, typename Fn>
inline void ForColumns(uint32_t head_dim, Fn fn) {
  uint32_t column = 0;
  const auto take = [&]<int kVectors>() {
    constexpr uint32_t kColumns = kVectors * Simd::kLanes;
    for (; column + kColumns <= head_dim; column += kColumns) {
      fn.template operator()<kVectors>(column);
    }
  };
  if constexpr (kMax >= 8) take.template operator()<8>();
  if constexpr (kMax >= 4) take.template operator()<4>();
  if constexpr (kMax >= 2) take.template operator()<2>();
  take.template operator()<1>();
}

constexpr float kMinusInfinity = -__builtin_inff();

// x + kRoundToInteger, 3 * 2^22, holds x rounded to an integer in its lowest
// bits.
constexpr float kRoundToInteger = 12582912;

// What a query head's attention over the chunks so far amounts to. The sum
// keeps one partial sum per lane: lane i adds the slots i mod kLanes, in order.
struct RunningSoftmax {
  float max = kMinusInfinity;
  Simd::F32 sum = Simd::Zero();

  // Turns the logits of one chunk, [n_padded] of which the first n_valid
  // count, into probabilities relative to the new maximum; those past n_valid
  // become 0. Returns the factor that earlier sums had to be multiplied by
  // (`sum` already is). Requires n_valid > 0. kExp: e or 2 to the power of a
  // logit. visit(i, p) gets the probabilities of slots [i, i + kLanes).
  template <Simd::F32 (*kExp)(Simd::F32) = Exp, typename Visit>
  float AddChunk(float* logits, uint32_t n_valid, uint32_t n_padded,
                 const Visit& visit) {
    for (uint32_t i = n_valid; i < n_padded; ++i) logits[i] = kMinusInfinity;
    Simd::F32 top = Simd::Load(logits);
    for (uint32_t i = Simd::kLanes; i < n_padded; i += Simd::kLanes) {
      top = Simd::Max(top, Simd::Load(logits + i));
    }
    float chunk_max = Simd::MaxOf(top);
    float rescale = 1.0f;
    if (chunk_max > max) {
      rescale = ExpOfOne<kExp>(max - chunk_max);  // 0 in the first chunk
      max = chunk_max;
      sum = Simd::Mul(sum, Simd::Set(rescale));
    }
    const Simd::F32 max_of_all = Simd::Set(max);
    for (uint32_t i = 0; i < n_padded; i += Simd::kLanes) {
      Simd::F32 p = kExp(Simd::Sub(Simd::Load(logits + i), max_of_all));
      Simd::Store(logits + i, p);
      visit(i, p);
      sum = Simd::Add(sum, p);
    }
    return rescale;
  }
  float AddChunk(float* logits, uint32_t n_valid, uint32_t n_padded) {
    return AddChunk(logits, n_valid, n_padded, [](uint32_t, Simd::F32) {});
  }
};

inline void Multiply(float* x, uint32_t n, float factor) {
  const Simd::F32 all = Simd::Set(factor);
  for (uint32_t i = 0; i < n; i += Simd::kLanes) {
    Simd::Store(x + i, Simd::Mul(Simd::Load(x + i), all));
  }
}

inline void Fill(float* x, uint32_t n, float value) {
  for (uint32_t i = 0; i < n; ++i) x[i] = value;
}

}  // namespace
}  // namespace lkv
