// Repacking: how single tokens leave a lane whose memory comes in pages. Of a
// few pages the best slots move together, and the pages that are left empty go.
//
// Pure, thread-safe, allocates nothing: the caller brings room.
#pragma once

#include <cstdint>
#include <span>

#include "policy/eviction_policy.h"

namespace lkv {

// Pages whose slots are sorted anew to free one.
inline constexpr uint32_t kRepackedPerFreed = 2;

struct RepackInput {
  std::span<const uint8_t> is_protected;  // [n_pages], see protection.h
  std::span<const float> page_score;      // [n_pages], no NaN; higher = keep
  // [n_pages * kPageTokens], of every slot; overwritten.
  std::span<float> slot_attention, slot_score;
  uint32_t n_leave = 0;    // pages to free; at most as many as may leave
  bool two_stage = false;  // as in LanePlanInput
};

// Where the result lies, and scratch.
struct RepackRoom {
  std::span<uint32_t> pages;         // [n_pages]
  std::span<uint32_t> slots;         // [n_pages * kPageTokens]
  std::span<uint32_t> slot_victims;  // [n_pages * kPageTokens]
};

// Of the pages that score lowest, kRepackedPerFreed times as many as are to be
// freed, the lowest slots leave, as many as the freed pages hold; where no
// other page may be touched whole pages leave. O(pages + slots log slots of
// those pages); 1 us to free a page of 128.
SlotMoves ChooseRepacking(const RepackInput& in, const RepackRoom& room);

}  // namespace lkv
