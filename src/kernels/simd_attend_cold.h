// Attention to chosen pages of cold groups for the vector sets: one query
// token, all query heads of a KV head. Include after avx2_simd.h or
// avx512_simd.h.
//
// Of the logits only what the lower bits of the keys add is left to be summed.
// Values are multiplied with the two halves of 16-bit probabilities: 8 bits
// would lose the slots that get less than a 500th of the largest, of which
// there may be many.
#pragma once

#include "kernels/simd_cold_pages.h"
#include "kernels/simd_fold_query.h"

namespace lkv {
namespace {

// Query heads that share a load; larger groups are taken in equal parts.
constexpr int kColdHeads = Simd::kMaxSums / 2 < 8 ? Simd::kMaxSums / 2 : 8;

// kChunkPages pages or fewer.
struct ColdChunk {
  const ChosenColdPage* pages;
  uint32_t n_pages;
  // Behind this one, the last of all, nothing is prefetched.
  const ChosenColdPage* last;

  // What is prefetched with page i: the same place of the next chunk, each part
  // of it while that of page i is read. (All at once, with the logits of page
  // i, there are more misses than the processor has registers for, and none
  // while values are summed.)
  const ChosenColdPage& Ahead(uint32_t i) const {
    const ChosenColdPage* const ahead = pages + i + kChunkPages;
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

// What a scan has found, from head first_head on.
struct EstimatesOfHeads {
  const ColdEstimates& all;
  uint32_t first_head;

  // Of heads they are logit_stride apart.
  const float* Logits(uint32_t page) const {
    return all.logits + first_head * all.logit_stride + page * kPageSlots;
  }
  size_t Row(uint32_t page) const {
    return size_t{page / kColdGroupPages} * all.group + first_head;
  }
};

// Sums of products of queries, head_dim apart, and the lower bits of the keys
// of one page, kLanes slots from `slot` on.
template <int kHeads>
struct LowerSums {
  Simd::I32 sums[kHeads];

  LowerSums() {
    for (Simd::I32& sum : sums) sum = Simd::ZeroIntegers();
  }

  // Adds 4 kBlocks dimensions from d on.
  template <uint32_t kBlocks>
  void Add(const uint8_t* body, uint32_t slot, uint32_t d, const int8_t* q,
           uint32_t head_dim) {
    static_assert(kBlocks <= Simd::kDotRounds);
    const Simd::I32 pairs = Simd::SetInteger(kLowerPairs);
    Simd::I32 dots[kHeads];
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) dots[g] = Simd::BeginDots(sums[g]);
#pragma GCC unroll 8
    for (uint32_t b = 0; b < kBlocks; ++b) {
      const Simd::I32 bytes =
          Simd::LoadIntegers(body + ColdLowerAt(slot, d + 4 * b));
      const Simd::I32 lower =
          Simd::And(Simd::ShiftRight(bytes, b % 4 * 2), pairs);
#pragma GCC unroll 8
      for (int g = 0; g < kHeads; ++g) {
        dots[g] = Simd::Dot(dots[g], lower,
                            Simd::SetBytes(q + g * head_dim + d + 4 * b));
      }
    }
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) sums[g] = Simd::EndDots(sums[g], dots[g]);
  }
};

// What the logits of a page are made of. What the scan left may lie in the
// cache of another core.
template <int kHeads>
inline void PrefetchLogits(const ChosenColdPage& page, uint32_t head_dim,
                           const EstimatesOfHeads& of) {
  for (size_t i = 0; i < ColdValueAt(head_dim, 0, 0); i += 64) {
    _mm_prefetch(page.body + i, _MM_HINT_T1);
  }
  const int8_t* const q = of.all.q + of.Row(page.page) * head_dim;
  for (size_t i = 0; i < kHeads * head_dim; i += 64) {
    _mm_prefetch(q + i, _MM_HINT_T1);
  }
#pragma GCC unroll 8
  for (int g = 0; g < kHeads; ++g) {
    _mm_prefetch(of.Logits(page.page) + g * of.all.logit_stride, _MM_HINT_T1);
  }
}

// Logits of one page: logits[g * stride + slot]. Prefetches `ahead`.
template <int kHeads>
[[gnu::always_inline]] inline void ColdPageLogits(
    const ChosenColdPage& page, const ChosenColdPage& ahead, uint32_t head_dim,
    const EstimatesOfHeads& of, float* logits, size_t stride) {
  PrefetchLogits<kHeads>(ahead, head_dim, of);
  const float* const estimates = of.Logits(page.page);
  const size_t row = of.Row(page.page);
  const int8_t* const q = of.all.q + row * head_dim;
  for (uint32_t slot = 0; slot < kPageSlots; slot += Simd::kLanes) {
    LowerSums<kHeads> sums;
    uint32_t d = 0;
    for (; d + 32 <= head_dim; d += 32) {
      sums.template Add<8>(page.body, slot, d, q, head_dim);
    }
    if (d < head_dim) {
      sums.template Add<4>(page.body, slot, d, q, head_dim);
    }
#pragma GCC unroll 8
    for (int g = 0; g < kHeads; ++g) {
      const Simd::F32 estimate =
          Simd::Add(Simd::Load(estimates + g * of.all.logit_stride + slot),
                    Simd::Set(of.all.offsets[row + g]));
      Simd::Store(logits + g * stride + slot,
                  Simd::MulAdd(Simd::FromIntegers(sums.sums[g]),
                               Simd::Set(of.all.units[row + g]), estimate));
    }
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
      _mm_prefetch(chunk.Ahead(i).body + ColdValueScalesAt(head_dim),
                   _MM_HINT_T1);
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
    const uint8_t* const ahead = chunk.Ahead(i).body;
    SplitSums<kHeads, kVectors> dots = sums.Begin();
#pragma GCC unroll 2
    for (uint32_t slot = 0; slot < kPageSlots; slot += 8) {
      const size_t at = ColdValueAt(head_dim, slot, column);
      for (int i = 0; i < 4 * kVectors * Simd::kLanes; i += 64) {
        _mm_prefetch(ahead + at + i, _MM_HINT_T1);
      }
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

// For kHeads heads from first_head on. kHeadDim: args.of.head_dim, or 0 = any.
template <int kHeads, uint32_t kHeadDim>
void AttendColdHeads(const AttendColdArgs& args, uint32_t first_head) {
  const uint32_t head_dim = kHeadDim != 0 ? kHeadDim : args.of.head_dim;
  const EstimatesOfHeads of = {args.of, first_head};
  float* const o = args.o + size_t{first_head} * head_dim;
  alignas(64) float local_p[kHeads * kAttendChunkSlots];
  RunningSoftmax softmax[kHeads];
  Fill(o, kHeads * head_dim, 0.0f);

  for (uint32_t first = 0; first < args.n_pages; first += kChunkPages) {
    const ColdChunk chunk = {
        .pages = args.pages + first,
        .n_pages = AtMost(args.n_pages - first, kChunkPages),
        .last = args.pages + args.n_pages + args.n_ahead - 1};
    const bool keeps = args.p != nullptr;
    float* const p =
        keeps ? args.p + first_head * args.p_stride + first * kPageSlots
              : local_p;
    const size_t p_stride = keeps ? args.p_stride : kAttendChunkSlots;
    for (uint32_t i = 0; i < chunk.n_pages; ++i) {
      ColdPageLogits<kHeads>(chunk.pages[i], chunk.Ahead(i), head_dim, of,
                             p + i * kPageSlots, p_stride);
    }
    const uint32_t n_slots = chunk.n_pages * kPageSlots;
    SplitWeights<kHeads> weights(chunk, head_dim);
    for (int g = 0; g < kHeads; ++g) {
      const float rescale =
          weights.AddChunk(g, p + g * p_stride, n_slots, &softmax[g]);
      if (rescale != 1.0f) Multiply(o + g * head_dim, head_dim, rescale);
      if (keeps) {
        args.p_max[(first_head + g) * args.p_max_stride + first / kChunkPages] =
            softmax[g].max;
      }
    }
    ForColumns<Simd::kMaxSums / 2 / kHeads>(
        head_dim, [&]<int kVectors>(uint32_t column) {
          AddColdColumns<kHeads, kVectors>(chunk, head_dim, weights, column, o);
        });
  }
  for (int g = 0; g < kHeads; ++g) {
    args.m[first_head + g] = softmax[g].max;
    args.l[first_head + g] = Simd::SumOf(softmax[g].sum);
  }
}

// AttendColdHeads() for n_heads <= kMax.
template <int kMax>
inline void AttendColdHeadsOf(const AttendColdArgs& args, uint32_t first_head,
                              uint32_t n_heads) {
  if constexpr (kMax > 1) {
    if (n_heads < kMax) {
      AttendColdHeadsOf<kMax - 1>(args, first_head, n_heads);
      return;
    }
  }
  const uint32_t head_dim = args.of.head_dim;
  if (head_dim == 64) return AttendColdHeads<kMax, 64>(args, first_head);
  if (head_dim == 128) return AttendColdHeads<kMax, 128>(args, first_head);
  AttendColdHeads<kMax, 0>(args, first_head);
}

inline void AttendCold(const AttendColdArgs& args) {
  const uint32_t n_parts = (args.of.group + kColdHeads - 1) / kColdHeads;
  for (uint32_t i = 0, g = 0; i < n_parts; ++i) {
    const uint32_t n_heads = (args.of.group - g) / (n_parts - i);
    AttendColdHeadsOf<kColdHeads>(args, g, n_heads);
    g += n_heads;
  }
}

}  // namespace
}  // namespace lkv
