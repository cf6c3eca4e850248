#include "policy/expected_attention_policy.h"

#include <algorithm>

#include "base/check.h"
#include "policy/non_negative_f16.h"

namespace lkv {

float ExpectedAttentionPolicy::InitialStat(uint32_t, uint32_t) const {
  // Attention ends at 1, norms of values at hundreds; sums of a page's stay
  // finite.
  return 1e30f;
}

void ExpectedAttentionPolicy::AddSlots(uint32_t lane, uint32_t n,
                                       const float* value_norms,
                                       const float* value_distances) {
  float* norm = value_norm_.of(lane) + pages_.n_slots(lane);
  // 0 times infinity would be no score.
  for (uint32_t i = 0; i < n; ++i) norm[i] = std::min(value_norms[i], kMaxF16);
  SlotStatPolicy::AddSlots(lane, n, value_norms, value_distances);
}

void ExpectedAttentionPolicy::ObserveExpectation(
    uint32_t lane, std::span<const float> attention) {
  CHECK(attention.size() == pages_.n_slots(lane));
  float* stat = stat_.of(lane);
  const float* norm = value_norm_.of(lane);
  for (size_t i = 0; i < attention.size(); ++i) {
    stat[i] = attention[i] * norm[i];
  }
}

void ExpectedAttentionPolicy::MoveSlots(uint32_t lane, const SlotMoves& moves) {
  SlotStatPolicy::MoveSlots(lane, moves);
  value_norm_.MoveSlots(lane, moves);
}

void ExpectedAttentionPolicy::RemovePage(uint32_t lane, uint32_t index) {
  value_norm_.RemovePage(lane, index, pages_.n_pages(lane));
  SlotStatPolicy::RemovePage(lane, index);
}

}  // namespace lkv
