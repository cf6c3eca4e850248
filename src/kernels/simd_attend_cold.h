// Attention to chosen pages of cold groups for the vector sets: one query
// token, all query heads of a KV head. Include after avx2_simd.h or
// avx512_simd.h.
//
// Logits are products of 8-bit queries and 4-bit levels (of the variance of
// their error, 4 % is the query's). Values are multiplied with the two halves
// of 16-bit probabilities: 8 bits would lose the slots that get less than a
// 500th of the largest, of which there may be many.
#pragma once

#include "kernels/simd_cold_pages.h"
#include "kernels/simd_fold_query.h"

namespace lkv {
namespace {

// Query heads that share a load; larger groups are taken in equal parts.
constexpr int kColdHeads = Simd::kMaxSums / 2 < 8 ? Simd::kMaxSums / 2 : 8;

// Pages between the one whose logits are found and the one whose keys are
// prefetched then; its own values are, too. (All of them a chunk ahead, as f16
// pages are, is 4 % slower: the first chunk of a lane, an eighth of it, waits.)
constexpr uint32_t kColdPrefetchPages = 8;

// kChunkPages pages or fewer.
struct ColdChunk {
  const ColdPage* pages;
  uint32_t n_pages;
  // Behind this one, the last of all, nothing is prefetched.
  const ColdPage* last;

  const ColdPage& Ahead(uint32_t i) const {
    const ColdPage* const ahead = pages + i + kColdPrefetchPages;
    return ahead < last ? *ahead : *last;
  }
};

// Units of weights: at most 127 * 256 + 127 of them, so that high halves are at
// most 127.
constexpr float kSplitRoom = 32768.0f / 32639;
constexpr float kSplitShare = 1.0f / 16384;

// Sums of products of bytes with high and low halves.
template <int kHeads, int kVectors>
struct SplitSums {
  Simd::I32 high[kHeads][kVectors];
  Simd::I32 low[kHeads][kVectors];

  SplitSums() {
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) {
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        high[g][c] = low[g][c] = Simd::ZeroIntegers();
      }
    }
  }
  // What Dot may be added to.
  SplitSums Begin() const {
    SplitSums dots;
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) {
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        dots.high[g][c] = Simd::BeginDots(high[g][c]);
        dots.low[g][c] = Simd::BeginDots(low[g][c]);
      }
    }
    return dots;
  }
  void End(const SplitSums& dots) {
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) {
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        high[g][c] = Simd::EndDots(high[g][c], dots.high[g][c]);
        low[g][c] = Simd::EndDots(low[g][c], dots.low[g][c]);
      }
    }
  }
};

// Sums of products of queries and levels of one page, kLanes slots from `slot`
// on.
template <int kHeads>
struct LogitSums {
  Simd::I32 sums[kHeads];

  LogitSums() {
    for (Simd::I32& sum : sums) sum = Simd::ZeroIntegers();
  }

  // Adds 4 kBlocks dimensions from d on.
  template <uint32_t kBlocks>
  void Add(const ColdPage& page, const ColdPage& ahead, uint32_t slot,
           uint32_t d, const FoldedQueries<kHeads>& q) {
    static_assert(kBlocks <= Simd::kDotRounds);
    const Simd::I32 lower_bits = Simd::SetInteger(kLowerPairs);
    const Simd::I32 upper_bits = Simd::SetInteger(kLowerPairs << 2);
    Simd::I32 dots[kHeads];
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) dots[g] = Simd::BeginDots(sums[g]);
#pragma GCC unroll 8
    for (uint32_t b = 0; b < kBlocks; ++b) {
      const size_t upper_at = ColdUpperAt(slot, d + 4 * b);
      const size_t lower_at = ColdLowerAt(slot, d + 4 * b);
      _mm_prefetch(ahead.digest + upper_at, _MM_HINT_T1);
      if (b % 4 == 0) _mm_prefetch(ahead.body + lower_at, _MM_HINT_T1);
      // To bits 2 and 3 of every byte.
      const Simd::I32 upper =
          Simd::RotateRight(Simd::LoadIntegers(page.digest + upper_at),
                            (2 * page.index + 30) % 32);
      const Simd::I32 lower =
          Simd::ShiftRight(Simd::LoadIntegers(page.body + lower_at), b % 4 * 2);
      const Simd::I32 levels =
          Simd::Or(Simd::And(upper, upper_bits), Simd::And(lower, lower_bits));
#pragma GCC unroll 8
      for (int g = 0; g < kHeads; ++g) {
        dots[g] =
            Simd::Dot(dots[g], levels, Simd::SetBytes(q.bytes[g] + d + 4 * b));
      }
    }
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) sums[g] = Simd::EndDots(sums[g], dots[g]);
  }
};

// Logits of one page: logits[g * stride + slot]. Prefetches its values, and the
// keys of `ahead`.
template <int kHeads>
[[gnu::always_inline]] inline void ColdPageLogits(
    const ColdPage& page, const ColdPage& ahead, uint32_t head_dim,
    const FoldedQueries<kHeads>& q, float* logits, size_t stride) {
  PrefetchScales(ahead.digest, head_dim);
  for (size_t i = ColdValueAt(head_dim, 0, 0);
       i < ColdValueScalesAt(head_dim) + kColdBodyScaleBytes; i += 64) {
    _mm_prefetch(page.body + i, _MM_HINT_T1);
  }
  for (uint32_t slot = 0; slot < kPageSlots; slot += Simd::kLanes) {
    LogitSums<kHeads> sums;
    uint32_t d = 0;
    for (; d + 32 <= head_dim; d += 32) {
      sums.template Add<8>(page, ahead, slot, d, q);
    }
    if (d < head_dim) sums.template Add<4>(page, ahead, slot, d, q);
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) {
      Simd::Store(logits + g * stride + slot,
                  Simd::MulAdd(Simd::FromIntegers(sums.sums[g]),
                               Simd::Set(q.units[g]), Simd::Set(q.offsets[g])));
    }
  }
}

// Logits of a chunk. All queries are folded first: their latencies overlap.
template <int kHeads>
[[gnu::always_inline]] inline void ChunkLogits(const ColdChunk& chunk,
                                               uint32_t head_dim,
                                               const float* q, float* logits,
                                               size_t stride) {
  const auto begins_group = [&](uint32_t i) {
    return i == 0 || chunk.pages[i].digest != chunk.pages[i - 1].digest;
  };
  FoldedQueries<kHeads> folded[kChunkPages];
  uint32_t n_folded = 0;
  for (uint32_t i = 0; i < chunk.n_pages; ++i) {
    if (!begins_group(i)) continue;
    folded[n_folded++].Fold(chunk.pages[i].digest, head_dim, q, 0,
                            kMeanColdLevel);
  }
  n_folded = 0;
  for (uint32_t i = 0; i < chunk.n_pages; ++i) {
    if (i > 0 && begins_group(i)) ++n_folded;
    ColdPageLogits<kHeads>(chunk.pages[i], chunk.Ahead(i), head_dim,
                           folded[n_folded], logits + i * kPageSlots, stride);
  }
}

// What multiplies the levels of a chunk's values, probability times scale, in
// units of which the largest scale has 2^14 to 2^15; and what their mins add to
// every dimension.
template <int kHeads>
class SplitWeights {
 public:
  alignas(64) int8_t high[kHeads][kAttendChunkSlots];
  alignas(64) int8_t low[kHeads][kAttendChunkSlots];
  float offsets[kHeads];
  float unit;

  SplitWeights(const ColdChunk& chunk, uint32_t head_dim) {
    Simd::F32 top = Simd::Zero();
    for (uint32_t i = 0; i < chunk.n_pages; ++i) {
      const auto* const scales = reinterpret_cast<const uint16_t*>(
          chunk.pages[i].body + ColdValueScalesAt(head_dim));
      for (uint32_t slot = 0; slot < kPageSlots; slot += Simd::kLanes) {
        const Simd::F32 scale = Simd::LoadF16(scales + slot);
        top = Simd::Max(top, scale);
        Simd::Store(scales_ + i * kPageSlots + slot, scale);
        Simd::Store(mins_ + i * kPageSlots + slot,
                    Simd::LoadF16(scales + kPageSlots + slot));
      }
    }
    // No probability is above 1.
    float units[Simd::kLanes];
    Simd::Store(units,
                UnitsOf(Simd::Set(Simd::MaxOf(top)), kSplitRoom, kSplitShare));
    unit = units[0];
  }

  // Turns the logits of head g into probabilities and those into weights.
  // Returns what RunningSoftmax does.
  float AddChunk(int g, float* logits, uint32_t n_slots,
                 RunningSoftmax* softmax) {
    const Simd::F32 rounder = Simd::Set(unit * kRoundToInteger);
    Simd::F32 offset = Simd::Zero();
    const float rescale = softmax->AddChunk(
        logits, n_slots, n_slots, [&](uint32_t i, Simd::F32 p) {
          offset = Simd::MulAdd(p, Simd::Load(mins_ + i), offset);
          const Simd::I32 bits =
              Simd::BitsOf(Simd::MulAdd(p, Simd::Load(scales_ + i), rounder));
          Simd::StoreLowBytes(high[g] + i, Simd::UpperHalf(bits));
          Simd::StoreLowBytes(low[g] + i, bits);
        });
    offsets[g] = Simd::SumOf(offset);
    return rescale;
  }

 private:
  alignas(64) float scales_[kAttendChunkSlots];
  alignas(64) float mins_[kAttendChunkSlots];
};

// Adds eight slots of a page from `first` on.
template <int kHeads, int kVectors>
inline void AddColdValues(const uint8_t* values,
                          const SplitWeights<kHeads>& weights, uint32_t first,
                          SplitSums<kHeads, kVectors>* dots) {
  const Simd::I32 nibbles = Simd::SetInteger(0x0f0f0f0f);
  Simd::I32 levels[2][kVectors];
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) {
    const Simd::I32 bytes = Simd::LoadIntegers(values + 4 * c * Simd::kLanes);
    levels[0][c] = Simd::And(bytes, nibbles);
    levels[1][c] = Simd::And(Simd::ShiftRight(bytes, 4), nibbles);
  }
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) {
      const Simd::I32 high = Simd::SetBytes(weights.high[g] + first + 4 * half);
      const Simd::I32 low = Simd::SetBytes(weights.low[g] + first + 4 * half);
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        dots->high[g][c] = Simd::Dot(dots->high[g][c], levels[half][c], high);
        dots->low[g][c] = Simd::Dot(dots->low[g][c], levels[half][c], low);
      }
    }
  }
}

// Adds a chunk's weighted values to kVectors vectors of every head's output,
// those from `column` on.
template <int kHeads, int kVectors>
inline void AddColdColumns(const ColdChunk& chunk, uint32_t head_dim,
                           const SplitWeights<kHeads>& weights, uint32_t column,
                           float* o) {
  static_assert(Simd::kDotRounds >= 4);
  SplitSums<kHeads, kVectors> sums;
  for (uint32_t i = 0; i < chunk.n_pages; ++i) {
    SplitSums<kHeads, kVectors> dots = sums.Begin();
#pragma GCC unroll 2
    for (uint32_t slot = 0; slot < kPageSlots; slot += 8) {
      const size_t at = ColdValueAt(head_dim, slot, column);
      AddColdValues<kHeads, kVectors>(chunk.pages[i].body + at, weights,
                                      i * kPageSlots + slot, &dots);
    }
    sums.End(dots);
  }
#pragma GCC unroll 8
  for (int g = 0; g < kHeads; ++g) {
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) {
      float* const to = o + g * head_dim + column + c * Simd::kLanes;
      const Simd::F32 levels =
          Simd::MulAdd(Simd::FromIntegers(sums.high[g][c]), Simd::Set(256),
                       Simd::FromIntegers(sums.low[g][c]));
      const Simd::F32 sum = Simd::MulAdd(levels, Simd::Set(weights.unit),
                                         Simd::Set(weights.offsets[g]));
      Simd::Store(to, Simd::Add(Simd::Load(to), sum));
    }
  }
}

// kHeadDim: args.head_dim, or 0 = any.
template <int kHeads, uint32_t kHeadDim>
void AttendColdHeads(const AttendColdArgs& args) {
  const uint32_t head_dim = kHeadDim != 0 ? kHeadDim : args.head_dim;
  alignas(64) float local_p[kHeads * kAttendChunkSlots];
  RunningSoftmax softmax[kHeads];
  Fill(args.o, kHeads * head_dim, 0.0f);

  for (uint32_t first = 0; first < args.n_pages; first += kChunkPages) {
    const ColdChunk chunk = {
        .pages = args.pages + first,
        .n_pages = AtMost(args.n_pages - first, kChunkPages),
        .last = args.pages + args.n_pages + args.n_ahead - 1};
    const bool keeps = args.p != nullptr;
    float* const p = keeps ? args.p + first * kPageSlots : local_p;
    const size_t p_stride = keeps ? args.p_stride : kAttendChunkSlots;
    ChunkLogits<kHeads>(chunk, head_dim, args.q, p, p_stride);
    const uint32_t n_slots = chunk.n_pages * kPageSlots;
    SplitWeights<kHeads> weights(chunk, head_dim);
    for (int g = 0; g < kHeads; ++g) {
      const float rescale =
          weights.AddChunk(g, p + g * p_stride, n_slots, &softmax[g]);
      if (rescale != 1.0f) Multiply(args.o + g * head_dim, head_dim, rescale);
      if (keeps) {
        args.p_max[g * args.p_max_stride + first / kChunkPages] =
            softmax[g].max;
      }
    }
    ForColumns<Simd::kMaxSums / 2 / kHeads>(
        head_dim, [&]<int kVectors>(uint32_t column) {
          AddColdColumns<kHeads, kVectors>(chunk, head_dim, weights, column,
                                           args.o);
        });
  }
  for (int g = 0; g < kHeads; ++g) {
    args.m[g] = softmax[g].max;
    args.l[g] = Simd::SumOf(softmax[g].sum);
  }
}

// AttendColdHeads() for args.group <= kMax.
template <int kMax>
inline void AttendColdHeadsOf(const AttendColdArgs& args) {
  if constexpr (kMax > 1) {
    if (args.group < kMax) {
      AttendColdHeadsOf<kMax - 1>(args);
      return;
    }
  }
  if (args.head_dim == 64) return AttendColdHeads<kMax, 64>(args);
  if (args.head_dim == 128) return AttendColdHeads<kMax, 128>(args);
  AttendColdHeads<kMax, 0>(args);
}

inline void AttendCold(const AttendColdArgs& args) {
  const uint32_t n_parts = (args.group + kColdHeads - 1) / kColdHeads;
  AttendColdArgs part = args;
  for (uint32_t i = 0, g = 0; i < n_parts; ++i, g += part.group) {
    part.group = (args.group - g) / (n_parts - i);
    part.q = args.q + size_t{g} * args.head_dim;
    part.m = args.m + g;
    part.l = args.l + g;
    part.o = args.o + size_t{g} * args.head_dim;
    if (args.p != nullptr) {
      part.p = args.p + g * args.p_stride;
      part.p_max = args.p_max + g * args.p_max_stride;
    }
    AttendColdHeadsOf<kColdHeads>(part);
  }
}

}  // namespace
}  // namespace lkv
