#include "policy/use_policies.h"

#include <cmath>
#include <span>

#include "policy/heavy_hitters.h"

namespace lkv {

void UsePolicy::Observe(const LaneObservation& observation) {
  pages_.CheckSees(observation);
  const LaneRange slots = ContestableSlots(ends_, observation.n_slots);
  const auto max_count =
      static_cast<uint32_t>(std::ceil(kUsedSlotShare * observation.n_slots));
  const float* mass = observation.mass_mean;
  HeavyHitters used = FindHeavyHitters(
      std::span(mass + slots.begin, slots.count()), kUsedMassShare, max_count,
      std::span(scratch_.of(observation.lane), slots.count()));
  if (used.count() == 0) return;
  float* stat = stat_.of(observation.lane);
  uint32_t n_at_threshold = used.n_at_threshold;
  for (uint32_t slot = slots.begin; slot < slots.end; ++slot) {
    if (mass[slot] < used.threshold) continue;
    if (mass[slot] == used.threshold) {
      if (n_at_threshold == 0) continue;
      --n_at_threshold;
    }
    stat[slot] = AfterUse(stat[slot], observation.query_pos);
  }
}

float LruPolicy::InitialStat(uint32_t /*lane*/, uint32_t pos) const {
  return static_cast<float>(pos);
}

float LruPolicy::AfterUse(float /*stat*/, uint32_t query_pos) const {
  return static_cast<float>(query_pos);
}

float LfuPolicy::AfterUse(float stat, uint32_t /*query_pos*/) const {
  return stat + 1;
}

}  // namespace lkv
