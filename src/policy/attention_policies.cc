#include "policy/attention_policies.h"

#include <algorithm>
#include <numeric>

namespace lkv {
namespace {

// Attention that the observed query paid to page `page`.
float PageMass(const LaneObservation& observation, uint32_t page) {
  uint32_t begin = page * kPageTokens;
  uint32_t end = std::min(observation.n_slots, begin + kPageTokens);
  return std::accumulate(observation.mass_max + begin,
                         observation.mass_max + end, 0.0f);
}

uint32_t PagesSeen(const LaneObservation& observation) {
  return PagesOf(observation.n_slots);
}

}  // namespace

void H2oPolicy::Observe(const LaneObservation& observation) {
  pages_.CheckSees(observation);
  const auto weight = static_cast<float>(observation.tokens_since);
  float* sum = stat_.of(observation.lane);
  for (uint32_t p = 0; p < PagesSeen(observation); ++p) {
    sum[p] += weight * PageMass(observation, p);
  }
}

void ObservedPolicy::ScorePages(uint32_t lane, uint32_t now_pos,
                                const PageScores& out) const {
  H2oPolicy::ScorePages(lane, now_pos, out);
  for (uint32_t p = 0; p < pages_.n_pages(lane); ++p) {
    uint32_t middle = pages_.first_pos(lane, p) + kPageTokens / 2;
    auto age = static_cast<float>(now_pos > middle ? now_pos - middle : 1);
    out.score[p] /= age;
    out.attention[p] = out.score[p];
  }
}

void TovaPolicy::Observe(const LaneObservation& observation) {
  pages_.CheckSees(observation);
  float* last = stat_.of(observation.lane);
  for (uint32_t p = 0; p < PagesSeen(observation); ++p) {
    last[p] = PageMass(observation, p);
  }
}

}  // namespace lkv
