#include "policy/lane_pages.h"

#include <algorithm>

namespace lkv {

LanePages::LanePages(const PolicyCapacity& capacity)
    : pages_per_lane_(capacity.pages_per_lane),
      n_pages_(capacity.n_lanes),
      n_slots_(capacity.n_lanes),
      first_pos_(capacity, 1) {}

void LanePages::AddPage(uint32_t lane, uint32_t first_pos) {
  CHECK(n_pages_[lane] < pages_per_lane_);
  first_pos_.of(lane)[n_pages_[lane]++] = first_pos;
}

uint32_t LanePages::AddSlots(uint32_t lane, uint32_t n) {
  uint32_t first = n_slots_[lane];
  n_slots_[lane] += n;
  CHECK(n_slots_[lane] <= n_pages_[lane] * kPageTokens);
  return first;
}

uint32_t LanePages::RemovePage(uint32_t lane, uint32_t index) {
  uint32_t n_pages = n_pages_[lane];
  CHECK(index < n_pages);
  n_slots_[lane] -= slots_in_page(lane, index);
  first_pos_.RemovePage(lane, index, n_pages);
  --n_pages_[lane];
  return n_pages;
}

uint32_t LanePages::slots_in_page(uint32_t lane, uint32_t index) const {
  uint32_t first = index * kPageTokens;
  return first >= n_slots_[lane]
             ? 0
             : std::min(kPageTokens, n_slots_[lane] - first);
}

void LanePages::ExchangeState(StateStream& stream) {
  for (uint32_t lane = 0; lane < n_lanes(); ++lane) {
    uint32_t n_pages = n_pages_[lane];
    uint32_t n_slots = n_slots_[lane];
    stream.Exchange(n_pages);
    stream.Exchange(n_slots);
    stream.Require(n_pages == n_pages_[lane] && n_slots == n_slots_[lane]);
    // Of a page that was told as scattered, the position it was opened for.
    for (uint32_t i = 0; i < n_pages_[lane]; ++i) {
      uint32_t first_pos = first_pos_.of(lane)[i];
      stream.Exchange(first_pos);
      stream.Require(first_pos <= first_pos_.of(lane)[i]);
      if (stream.ok()) first_pos_.of(lane)[i] = first_pos;
    }
  }
}

void LanePages::CheckSees(const LaneObservation& observation) const {
  CHECK(observation.n_slots <= n_slots_[observation.lane]);
  if (observation.n_slots == 0) return;
  uint32_t newest = observation.n_slots - 1;
  CHECK(PositionWritten(observation.lane, newest) <= observation.query_pos);
}

}  // namespace lkv
