// Estimated logits of cold groups for the vector sets. Include after
// avx2_simd.h or avx512_simd.h.
//
// Every digest is read once, all query heads of the group using each load while
// it is in a register. A byte holds the upper bits of four pages: those of page
// i, masked but not shifted, count 4^i times, which the logit's factor takes
// back. The queries of the next group are folded before one is scanned, so that
// their latency hides behind its products: of the 1.33 ns that a slot takes
// with 3 heads of 64 dimensions, 0.92 are products, and the processor's limit
// for them is 0.81.
#pragma once

#include "kernels/simd_fold_query.h"

namespace lkv {
namespace {

// Groups between the one being scanned and the one being prefetched: 10 KiB of
// 64 dimensions, 0.7 us.
constexpr uint32_t kScanPrefetchGroups = 8;

// The digest to be prefetched while group `group` is scanned; where there is
// none, one that is in the cache.
inline const uint8_t* DigestAhead(const ScanColdArgs& args, uint32_t group) {
  const uint32_t ahead = group + kScanPrefetchGroups;
  if (ahead < args.n_groups) return args.digests[ahead];
  if (ahead - args.n_groups < args.n_ahead) {
    return args.ahead[ahead - args.n_groups];
  }
  return args.digests[args.n_groups - 1];
}

// Pages whose bits are masked where they lie; those above are shifted down.
constexpr int kMaskedPages = Simd::kDotLargest >= 0xc0 ? 4 : 2;
static_assert(Simd::kDotLargest >= (3 << (2 * (kMaskedPages - 1))));

template <int kHeads>
struct ScanQueries : FoldedQueries<kHeads> {
  // Units for each page, whose sums are 4^(page % kMaskedPages) times too large
  // and whose levels are four times the upper bits.
  alignas(64) float page_units[kMaskedPages][Simd::kLanes];

  // Group `index` of args, for the heads from first_head on.
  [[gnu::always_inline]] void Fold(const ScanColdArgs& args, uint32_t index,
                                   uint32_t first_head, uint32_t head_dim) {
    const ColdEstimates& to = args.to;
    const size_t row = size_t{args.first_group + index} * to.group + first_head;
    FoldedQueries<kHeads>::Fold(
        args.digests[index], head_dim, args.q + size_t{first_head} * head_dim,
        to.q + row * head_dim, to.units + row, to.offsets + row);
    Simd::F32 unit = Simd::Mul(Simd::Load(this->units), Simd::Set(4));
    for (auto& of_page : page_units) {
      Simd::Store(of_page, unit);
      unit = Simd::Mul(unit, Simd::Set(0.25f));
    }
  }
};

// Sums over dimensions of products of bytes, of all pages of a group and all
// heads, in kLanes slots.
template <int kHeads>
struct ScanSums {
  Simd::I32 sums[kColdGroupPages][kHeads];

  ScanSums() {
    for (auto& of_page : sums) {
      for (Simd::I32& sum : of_page) sum = Simd::ZeroIntegers();
    }
  }

  // Adds 4 kBlocks dimensions, `digest` and `queries` being those of the first;
  // queries of heads are head_dim apart. Prefetches as many bytes from `ahead`
  // on.
  template <int kBlocks>
  void Add(const uint8_t* digest, const int8_t* queries, uint32_t head_dim,
           const uint8_t* ahead) {
    static_assert(kBlocks <= Simd::kDotRounds);
    Simd::I32 dots[kColdGroupPages][kHeads];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kColdGroupPages; ++i) {
#pragma GCC unroll 8
      for (int g = 0; g < kHeads; ++g) dots[i][g] = Simd::BeginDots(sums[i][g]);
    }
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b) {
      _mm_prefetch(ahead + 64 * b, _MM_HINT_T1);
      const Simd::I32 bytes = Simd::LoadIntegers(digest + 64 * b);
#pragma GCC unroll 8
      for (uint32_t i = 0; i < kColdGroupPages; ++i) {
        const Simd::I32 upper = Simd::And(
            Simd::ShiftRight(bytes, i / kMaskedPages * kMaskedPages * 2),
            Simd::SetInteger(0x03030303u << (i % kMaskedPages * 2)));
#pragma GCC unroll 8
        for (int g = 0; g < kHeads; ++g) {
          dots[i][g] =
              Simd::Dot(dots[i][g], upper,
                        Simd::SetBytes(queries + g * head_dim + 4 * b));
        }
      }
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kColdGroupPages; ++i) {
#pragma GCC unroll 8
      for (int g = 0; g < kHeads; ++g) {
        sums[i][g] = Simd::EndDots(sums[i][g], dots[i][g]);
      }
    }
  }

  void StoreLogits(const ScanQueries<kHeads>& q, float* logits,
                   size_t stride) const {
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kColdGroupPages; ++i) {
#pragma GCC unroll 8
      for (int g = 0; g < kHeads; ++g) {
        Simd::Store(logits + g * stride + i * kPageSlots,
                    Simd::MulAdd(Simd::FromIntegers(sums[i][g]),
                                 Simd::Set(q.page_units[i % kMaskedPages][g]),
                                 Simd::Set(q.offsets[g])));
      }
    }
  }
};

// For kHeads heads from first_head on. kHeadDim: args.to.head_dim, or 0 = any.
// (Known, it leaves no short loops whose ends the processor guesses wrong: 15 %
// less time from memory.)
template <int kHeads, uint32_t kHeadDim>
void ScanHeads(const ScanColdArgs& args, uint32_t first_head) {
  const ColdEstimates& to = args.to;
  const uint32_t head_dim = kHeadDim != 0 ? kHeadDim : to.head_dim;
  if (args.n_groups == 0) return;
  float* const logits = to.logits + first_head * to.logit_stride +
                        size_t{args.first_group} * kColdGroupSlots;
  ScanQueries<kHeads> folded[2];
  folded[0].Fold(args, 0, first_head, head_dim);
  for (uint32_t group = 0; group < args.n_groups; ++group) {
    const ScanQueries<kHeads>& q = folded[group % 2];
    if (group + 1 < args.n_groups) {
      folded[(group + 1) % 2].Fold(args, group + 1, first_head, head_dim);
    }
    const uint8_t* const digest = args.digests[group];
    const uint8_t* const ahead = DigestAhead(args, group);
    for (uint32_t slot = 0; slot < kPageSlots; slot += Simd::kLanes) {
      ScanSums<kHeads> sums;
      uint32_t d = 0;
      const auto add = [&]<int kBlocks>() {
        const size_t at = ColdUpperAt(slot, d);
        sums.template Add<kBlocks>(digest + at, q.bytes + d, head_dim,
                                   ahead + at);
        d += 4 * kBlocks;
      };
      while (d + 32 <= head_dim) add.template operator()<8>();
      if (d < head_dim) add.template operator()<4>();
      sums.StoreLogits(q, logits + group * kColdGroupSlots + slot,
                       to.logit_stride);
    }
    PrefetchScales(ahead, head_dim);
  }
}

// Query heads that share a load; larger groups are taken in equal parts.
constexpr int kScanHeads = Simd::kMaxSums / kColdGroupPages;

// ScanHeads() for n_heads <= kMax.
template <int kMax>
inline void ScanHeadsOf(const ScanColdArgs& args, uint32_t first_head,
                        uint32_t n_heads) {
  if constexpr (kMax > 1) {
    if (n_heads < kMax) {
      ScanHeadsOf<kMax - 1>(args, first_head, n_heads);
      return;
    }
  }
  if (args.to.head_dim == 64) return ScanHeads<kMax, 64>(args, first_head);
  if (args.to.head_dim == 128) return ScanHeads<kMax, 128>(args, first_head);
  ScanHeads<kMax, 0>(args, first_head);
}

inline void ScanCold(const ScanColdArgs& args) {
  const uint32_t n_parts = (args.to.group + kScanHeads - 1) / kScanHeads;
  for (uint32_t i = 0, g = 0; i < n_parts; ++i) {
    const uint32_t n_heads = (args.to.group - g) / (n_parts - i);
    ScanHeadsOf<kScanHeads>(args, g, n_heads);
    g += n_heads;
  }
}

}  // namespace
}  // namespace lkv
