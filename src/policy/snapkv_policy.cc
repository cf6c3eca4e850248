#include "policy/snapkv_policy.h"

#include <algorithm>

#include "base/check.h"

namespace lkv {

SnapKvPolicy::SnapKvPolicy(const ProtectedEnds& ends,
                           const PolicyCapacity& capacity)
    : ends_(ends),
      pages_(capacity),
      sums_(capacity, kPageTokens),
      n_current_(capacity.n_lanes) {}

size_t SnapKvPolicy::bytes_per_page() const {
  return LanePages::kBytesPerPage + kPageTokens * sizeof(SlotSums);
}

void SnapKvPolicy::AddPage(uint32_t lane, uint32_t first_pos) {
  pages_.AddPage(lane, first_pos);
}

void SnapKvPolicy::AddSlots(uint32_t lane, uint32_t n,
                            const float* /*value_norms*/,
                            const float* /*value_distances*/) {
  uint32_t first_slot = pages_.AddSlots(lane, n);
  std::fill_n(sums_.of(lane) + first_slot, n, SlotSums{0, 0});
}

void SnapKvPolicy::Observe(const LaneObservation& observation) {
  pages_.CheckSees(observation);
  const uint32_t lane = observation.lane;
  SlotSums* sums = sums_.of(lane);
  if (n_current_[lane] == kWindowQueries) {
    for (uint32_t i = 0; i < pages_.n_slots(lane); ++i) {
      sums[i] = {.current = 0, .before = sums[i].current};
    }
    n_current_[lane] = 0;
  }
  ++n_current_[lane];
  for (uint32_t i = 0; i < observation.n_slots; ++i) {
    sums[i].current += observation.mass_max[i];
  }
}

float SnapKvPolicy::MeanAttention(uint32_t lane, const SlotSums& sums) const {
  constexpr auto kWindow = static_cast<float>(kWindowQueries);
  float share_before =
      (kWindow - static_cast<float>(n_current_[lane])) / kWindow;
  return (sums.current + share_before * sums.before) / kWindow;
}

void SnapKvPolicy::ScoreSlots(uint32_t lane, uint32_t /*now_pos*/,
                              const SlotScores& out) const {
  const uint32_t n_slots = pages_.n_slots(lane);
  CHECK(out.attention.size() == n_slots && out.score.size() == n_slots);
  const LaneRange slots = ContestableSlots(ends_, n_slots);
  const SlotSums* sums = sums_.of(lane);
  std::fill(out.score.begin(), out.score.end(), 0.0f);
  constexpr uint32_t kReach = kPoolTokens / 2;
  for (uint32_t i = slots.begin; i < slots.end; ++i) {
    uint32_t first = i - std::min(i - slots.begin, kReach);
    uint32_t last = std::min(slots.end - 1, i + kReach);
    for (uint32_t j = first; j <= last; ++j) {
      out.score[i] = std::max(out.score[i], MeanAttention(lane, sums[j]));
    }
  }
  std::copy(out.score.begin(), out.score.end(), out.attention.begin());
}

void SnapKvPolicy::MoveSlots(uint32_t lane, const SlotMoves& moves) {
  sums_.MoveSlots(lane, moves);
}

void SnapKvPolicy::RemovePage(uint32_t lane, uint32_t index) {
  uint32_t n_pages = pages_.RemovePage(lane, index);
  sums_.RemovePage(lane, index, n_pages);
}

}  // namespace lkv
