#include "policy/slot_history.h"

#include <algorithm>

#include "base/unsigned_f8.h"

namespace lkv {

void SlotHistory::AddSlots(uint32_t lane, uint32_t first_slot, uint32_t n) {
  average_.AddSlots(lane, first_slot, n);
  std::fill_n(peak_.of(lane) + first_slot, n, uint8_t{0});
}

void SlotHistory::Observe(const LaneObservation& observation) {
  average_.Observe(observation.lane, observation.mass_max, observation.n_slots,
                   observation.tokens_since);
  if (!IsPeakQuery(observation.query_pos)) return;
  // The newest tokens never leave, so they are the newest slots.
  const uint32_t n_far =
      observation.n_slots - std::min(observation.n_slots, kFarTokens);
  const float* mass = observation.mass_max;
  uint8_t* peak = peak_.of(observation.lane);
  for (uint32_t i = 0; i < n_far; ++i) {
    peak[i] = std::max(peak[i], F32ToUnsignedF8(mass[i]));
  }
}

void SlotHistory::NetworkInputs(uint32_t lane, uint32_t first_slot, uint32_t n,
                                float* out) const {
  average_.Log2(lane, first_slot, {out, n});
  const uint8_t* peak = peak_.of(lane) + first_slot;
  for (uint32_t i = 0; i < n; ++i) out[n + i] = UnsignedF8Log2(peak[i]);
}

void SlotHistory::MoveSlots(uint32_t lane, const SlotMoves& moves) {
  average_.MoveSlots(lane, moves);
  peak_.MoveSlots(lane, moves);
}

void SlotHistory::RemovePage(uint32_t lane, uint32_t index, uint32_t n_pages) {
  average_.RemovePage(lane, index, n_pages);
  peak_.RemovePage(lane, index, n_pages);
}

}  // namespace lkv
