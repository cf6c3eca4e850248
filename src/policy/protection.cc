#include "policy/protection.h"

#include <algorithm>

#include "base/check.h"

namespace lkv {

LaneRange ContestableSlots(const ProtectedEnds& ends, uint32_t n_slots) {
  uint32_t end = n_slots - std::min(n_slots, ends.recent_tokens);
  return {.begin = std::min(ends.sink_tokens, end), .end = end};
}

LaneRange ContestablePages(const ProtectedEnds& ends, uint32_t n_slots) {
  LaneRange slots = ContestableSlots(ends, n_slots);
  uint32_t end = slots.end / kPageTokens;
  uint32_t begin = PagesOf(slots.begin);
  return {.begin = std::min(begin, end), .end = end};
}

float ContestableMass(const ProtectedEnds& ends, const float* mass,
                      uint32_t n_slots) {
  LaneRange slots = ContestableSlots(ends, n_slots);
  // Eight running sums: one would wait four cycles for every addition.
  float partial[8] = {};
  uint32_t i = slots.begin;
  for (; i + 8 <= slots.end; i += 8) {
    for (uint32_t j = 0; j < 8; ++j) partial[j] += mass[i + j];
  }
  for (; i < slots.end; ++i) partial[0] += mass[i];
  return ((partial[0] + partial[4]) + (partial[1] + partial[5])) +
         ((partial[2] + partial[6]) + (partial[3] + partial[7]));
}

void MarkProtectedPages(const ProtectedEnds& ends,
                        std::span<const PositionRange> pinned,
                        std::span<const uint32_t> first_pos, uint32_t n_slots,
                        std::span<uint8_t> is_protected) {
  CHECK(is_protected.size() == first_pos.size());
  uint32_t contestable_end = ContestableSlots(ends, n_slots).end;
  for (uint32_t p = 0; p < first_pos.size(); ++p) {
    uint32_t page_begin = first_pos[p];
    uint32_t page_end = page_begin + kPageTokens;
    uint32_t slots_end = (p + 1) * kPageTokens;
    bool open = slots_end > n_slots;
    bool keep =
        open || slots_end > contestable_end || page_begin < ends.sink_tokens;
    for (const PositionRange& pin : pinned) {
      keep |= std::max(pin.begin, page_begin) < std::min(pin.end, page_end);
    }
    is_protected[p] = keep ? 1 : 0;
  }
}

}  // namespace lkv
