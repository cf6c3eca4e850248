#include "policy/repacking.h"

#include <algorithm>

#include "base/check.h"
#include "policy/tier_planner.h"

namespace lkv {

SlotMoves ChooseRepacking(const RepackInput& in, const RepackRoom& room) {
  const auto n_pages = static_cast<uint32_t>(in.page_score.size());
  CHECK(in.is_protected.size() == n_pages);
  uint32_t n_candidates = 0;
  for (uint32_t p = 0; p < n_pages; ++p) {
    if (in.is_protected[p] == 0) room.pages[n_candidates++] = p;
  }
  CHECK(in.n_leave <= n_candidates);
  if (n_candidates == in.n_leave) {  // nobody to share a page with
    return {.pages = room.pages.first(n_candidates), .slots = {}};
  }
  const uint32_t n_repacked =
      std::min(n_candidates, kRepackedPerFreed * in.n_leave);
  const auto first = room.pages.begin();
  std::nth_element(first, first + n_repacked, first + n_candidates,
                   [&](uint32_t a, uint32_t b) {
                     return in.page_score[a] != in.page_score[b]
                                ? in.page_score[a] < in.page_score[b]
                                : a < b;
                   });
  std::sort(first, first + n_repacked);

  // Their slots next to each other, in the arrays that held those of all.
  const uint32_t n_slots = n_repacked * kPageTokens;
  for (uint32_t i = 0; i < n_repacked; ++i) {
    const size_t from = size_t{room.pages[i]} * kPageTokens;
    const size_t to = size_t{i} * kPageTokens;
    std::copy_n(&in.slot_attention[from], kPageTokens, &in.slot_attention[to]);
    std::copy_n(&in.slot_score[from], kPageTokens, &in.slot_score[to]);
  }
  const uint32_t n_victims =
      ChooseVictims({.is_protected = {},
                     .attention = in.slot_attention.first(n_slots),
                     .score = in.slot_score.first(n_slots),
                     .n_leave = in.n_leave * kPageTokens,
                     .max_moves = in.n_leave * kPageTokens,
                     .two_stage = in.two_stage},
                    room.slot_victims);
  CHECK(n_victims == in.n_leave * kPageTokens);
  uint32_t n_left = n_victims;  // victims come in descending order
  uint32_t n_moved = 0;
  for (uint32_t i = 0; i < n_slots; ++i) {
    if (n_left > 0 && room.slot_victims[n_left - 1] == i) {
      --n_left;
    } else {
      room.slots[n_moved++] =
          room.pages[i / kPageTokens] * kPageTokens + i % kPageTokens;
    }
  }
  return {.pages = room.pages.first(n_repacked),
          .slots = room.slots.first(n_moved)};
}

}  // namespace lkv
