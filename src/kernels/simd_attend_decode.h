// Decode attention of the vector sets: one query token, all query heads of a
// KV head. Include after avx2_simd.h or avx512_simd.h.
//
// Bound by memory, so everything serves one aim, to read each page once and
// early: all heads of the group use a converted load while it is in a
// register, pages are prefetched through the page list (a walk over keys, then
// values, of scattered pages defeats the hardware prefetcher: without it 1.4
// to 2 times slower), and the softmax looks at its maximum once in 256 slots.
// It reads no memory itself, so it prefetches a part of the next values, lest
// memory have nothing to do meanwhile (of a plain read with two threads, int8
// in extents: 0.82 instead of 0.75; f16: 0.88, 0.85). That the loop over values
// does so again costs less than a branch.
#pragma once

#include "kernels/simd_decode_halves.h"
#include "kernels/simd_decode_int8.h"
#include "kernels/simd_pages.h"

namespace lkv {
namespace {

// Where in a page the two cache lines lie that the softmax of head g
// prefetches: the g-th pair of its values, or the first where there are no
// more. (Two without a loop: with a loop over the lines of a row it took twice
// as long.)
template <KvType kType>
inline size_t PrefetchedBySoftmax(size_t g, uint32_t head_dim) {
  const size_t value_bytes =
      size_t{kPageSlots} * head_dim * (kType == KvType::kInt8 ? 1 : 2);
  const size_t key_bytes = value_bytes;
  return key_bytes + (128 * (g + 1) <= value_bytes ? 128 * g : 0);
}

// Query heads that share a load; larger groups are taken in parts.
constexpr int kMaxGroup = 8;

template <KvType kType, int kGroup>
void DecodeGroup(const AttendDecodeArgs& args) {
  const PageRun& run = args.run;
  const uint32_t head_dim = run.head_dim;
  const uint32_t n_pages = PagesFor(run.n_slots);
  alignas(64) float local_p[kGroup * kAttendChunkSlots];
  const ChunkReader<kType, kGroup> pages(run, args.q);
  RunningSoftmax softmax[kGroup];
  Fill(args.o, kGroup * head_dim, 0.0f);

  for (uint32_t first = 0; first < n_pages; first += kChunkPages) {
    const uint32_t first_slot = first * kPageSlots;
    const PagesAhead ahead(run, args.next, first);
    const Chunk chunk = {
        .first_page = first,
        .n_pages = AtMost(n_pages - first, kChunkPages),
        .n_slots = AtMost(run.n_slots - first_slot, kAttendChunkSlots),
        .ahead = ahead.address};
    float* p = args.p != nullptr ? args.p + first_slot : local_p;
    const size_t p_stride =
        args.p != nullptr ? args.p_stride : kAttendChunkSlots;
    pages.Logits(chunk, p, p_stride);
    for (int g = 0; g < kGroup; ++g) {
      const size_t prefetched = PrefetchedBySoftmax<kType>(g, head_dim);
      float rescale = softmax[g].AddChunk(
          p + g * p_stride, chunk.n_slots, chunk.n_pages * kPageSlots,
          [&](uint32_t slot, Simd::F32) {
            if (slot % kPageSlots != 0) return;
            const uint8_t* const to =
                ahead.address[slot / kPageSlots] + prefetched;
            _mm_prefetch(to, _MM_HINT_T1);
            _mm_prefetch(to + 64, _MM_HINT_T1);
          });
      if (rescale != 1.0f) Multiply(args.o + g * head_dim, head_dim, rescale);
      if (args.p != nullptr) {
        args.p_max[g * args.p_max_stride + first / kChunkPages] =
            softmax[g].max;
      }
    }
    pages.AddValues(chunk, p, p_stride, args.o);
  }
  for (int g = 0; g < kGroup; ++g) {
    args.m[g] = softmax[g].max;
    args.l[g] = Simd::SumOf(softmax[g].sum);
  }
}

// DecodeGroup() for args.group <= kMax.
template <KvType kType, int kMax>
inline void DecodeGroupOf(const AttendDecodeArgs& args) {
  if constexpr (kMax > 1) {
    if (args.group < kMax) {
      DecodeGroupOf<kType, kMax - 1>(args);
      return;
    }
  }
  DecodeGroup<kType, kMax>(args);
}

template <KvType kType>
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
    DecodeGroupOf<kType, kMaxGroup>(part);
  }
}

}  // namespace
}  // namespace lkv
