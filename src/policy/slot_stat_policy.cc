#include "policy/slot_stat_policy.h"

#include <algorithm>

#include "base/check.h"

namespace lkv {

void SlotStatPolicy::AddPage(uint32_t lane, uint32_t first_pos) {
  pages_.AddPage(lane, first_pos);
}

void SlotStatPolicy::AddSlots(uint32_t lane, uint32_t n,
                              const float* /*value_norms*/,
                              const float* /*value_distances*/) {
  const uint32_t first_slot = pages_.AddSlots(lane, n);
  float* stat = stat_.of(lane);
  for (uint32_t slot = first_slot; slot < first_slot + n; ++slot) {
    stat[slot] = InitialStat(lane, pages_.PositionWritten(lane, slot));
  }
}

void SlotStatPolicy::ScoreSlots(uint32_t lane, uint32_t /*now_pos*/,
                                const SlotScores& out) const {
  const uint32_t n_slots = pages_.n_slots(lane);
  CHECK(out.attention.size() == n_slots && out.score.size() == n_slots);
  std::copy_n(stat_.of(lane), n_slots, out.score.begin());
  std::copy_n(stat_.of(lane), n_slots, out.attention.begin());
}

void SlotStatPolicy::MoveSlots(uint32_t lane, const SlotMoves& moves) {
  stat_.MoveSlots(lane, moves);
}

void SlotStatPolicy::RemovePage(uint32_t lane, uint32_t index) {
  const uint32_t n_pages = pages_.RemovePage(lane, index);
  stat_.RemovePage(lane, index, n_pages);
}

}  // namespace lkv
