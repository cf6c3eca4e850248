// Cold groups: keys and values of kColdGroupPages consecutive full pages of a
// lane in 4 bits, cut so that attention to all of them can be estimated from a
// sixteenth of their f16 bytes; and the arguments of their kernels, members of
// KernelTable.
//
// An element is min + scale * level, level an integer from 0 to 15. Keys have a
// scale and min for each channel of the group, values for each slot (KIVI,
// arXiv 2402.02750: outliers of keys stay in their channel). The upper two bits
// of the keys' levels, and the channels' scales, are the group's *digest*; the
// lower two lie beside the values in the *body* of their page, which is read
// only where the estimate is high.
//
// digest: upper [head_dim / 4][16][4] bytes: bits 2 i and 2 i + 1 of byte
//   (d / 4, slot, d % 4) are those of page i of the group; then f16 scale
//   [head_dim] and min [head_dim] of the channels.
// body: lower [head_dim / 16][16][4] bytes: bits 2 i and 2 i + 1 of byte
//   (d / 16, slot, d % 4) are those of the dimension d with d / 4 % 4 = i; then
//   values [2][head_dim][4] bytes: the low nibble of byte (a, d, t) is the
//   level of slot 8 a + t, the high one of slot 8 a + 4 + t; then f16 scale
//   [16] and min [16] of the slots' values.
//
// So 64 bytes hold four dimensions of 16 slots, or four slots of 16 dimensions
// twice: what a multiplication of bytes sums by fours in 16 lanes. Digests and
// bodies are aligned to 2 bytes at least; to 64 they are read faster.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace lkv {

inline constexpr uint32_t kColdGroupPages = 4;
inline constexpr uint32_t kColdGroupSlots = kColdGroupPages * kPageTokens;
// A digest has kColdDigestBytesPerDim * head_dim bytes, a body
// kColdBodyBytesPerDim * head_dim + kColdBodyScaleBytes.
inline constexpr size_t kColdDigestBytesPerDim = 20;
inline constexpr size_t kColdBodyBytesPerDim = 12;
inline constexpr size_t kColdBodyScaleBytes = 64;

// One page of a cold group.
struct ColdPage {
  const uint8_t* digest = nullptr;  // of its group; nullptr: not a cold page
  const uint8_t* body = nullptr;
  uint32_t index = 0;  // in the group
};

// Quantises the f16 pages of a group. No element is further than half a step
// from what it was (scales are rounded up to f16); those of a channel or row of
// equal elements are exact, but for the sign of 0. What becomes of a group with
// elements that are not finite is unspecified.
struct EncodeColdArgs {
  const uint8_t* pages[kColdGroupPages];
  uint32_t head_dim;  // multiple of 16
  uint8_t* digest;
  uint8_t* bodies[kColdGroupPages];
};

// What a scan of a lane finds, for all query heads of its KV head: estimated
// logits, and what makes them whole where the lower bits are read. Arrays begin
// with group 0.
//
// A logit is sum q (min + 7.5 scale) + sum (q scale) (level - 7.5), level the
// upper bits times 4 plus the lower ones, which are 1.5, the middle, in an
// estimate. In the second sum q scale is rounded to units of a power of two, of
// which its largest magnitude in the group has at least 63.5 and at most 127:
// alike in every set. (Of the variance of a whole logit's error that is 4 %,
// the rest is the levels'; around 0 instead of 7.5 it would be a fifth.)
struct ColdEstimates {
  uint32_t group;     // query heads
  uint32_t head_dim;  // multiple of 16
  // [group, logit_stride]; slot s of group i at kColdGroupSlots * i + s
  float* logits;
  size_t logit_stride;
  int8_t* q;       // [groups, group, head_dim] rounded q scale, in units
  float* units;    // [groups, group]
  float* offsets;  // [groups, group] what lower bits of 0 add: -1.5 units sum q
};

// Scans groups [first_group, first_group + n_groups) of a lane.
struct ScanColdArgs {
  const uint8_t* const* digests;  // [n_groups]
  uint32_t first_group;
  uint32_t n_groups;
  // Digests that are read next, to be prefetched.
  const uint8_t* const* ahead = nullptr;  // [n_ahead]
  uint32_t n_ahead = 0;
  const float* q;  // [group, head_dim], already scaled
  ColdEstimates to;
};

// Sums of exp(logit - m) over the slots of each page of some groups; m: the
// largest logit of all of them. Sums may be off by 1.1e-4 of them: masses are
// compared in steps of 9 %.
struct PageSumsArgs {
  const float* logits;  // [group, logit_stride]; 16 for each page
  size_t logit_stride;
  uint32_t group;
  uint32_t n_groups;  // n_groups > 0
  float* m;           // one for each head, m_stride apart
  size_t m_stride;
  float* sums;  // [group, sum_stride], one for each page
  size_t sum_stride;
};

// The attention mass of pages whose sums are known: of each query head as a
// share of all that it attends to, the pages and a state of other slots; the
// largest of the heads. Pages have a mass of 0 before, or -1 if they do not
// count, which they keep. The sums of run i of run_pages pages are relative to
// its m. Up to multiples of kMassPadding, m and sums must be readable and
// finite, and masses are -1.
inline constexpr uint32_t kMassPadding = 16;
struct PageMassesArgs {
  uint32_t group;
  uint32_t n_pages;
  uint32_t run_pages;  // multiple of kMassPadding
  float* m;            // [group, m_stride]; left undefined
  size_t m_stride;
  const float* sums;  // [group, sum_stride]
  size_t sum_stride;
  const float* other_m;  // [group] of the other slots: maximum logit,
  const float* other_l;  // [group] sum of exp(logit - maximum)
  float* mass;           // [n_pages]
};

// A page that is read in full.
struct ChosenColdPage {
  const uint8_t* body;
  uint32_t page;  // of the lane: group page / kColdGroupPages
};

// As AttendDecodeArgs, over pages of groups that have been scanned: slot s of
// page i is slot 16 i + s.
struct AttendColdArgs {
  const ChosenColdPage* pages;  // [n_pages + n_ahead]; n_pages > 0
  uint32_t n_pages;
  uint32_t n_ahead = 0;  // pages behind those, to be prefetched
  ColdEstimates of;
  float* m;  // [group]
  float* l;  // [group]
  float* o;  // [group, head_dim]
  float* p;  // or nullptr
  size_t p_stride;
  float* p_max;
  size_t p_max_stride;
};

}  // namespace lkv
