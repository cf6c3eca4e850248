#include "cache/lane_evidence.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace lkv {

LaneEvidence::LaneEvidence(const KvShape& shape, const KernelTable& kernels,
                           const Rotation& rotation, const ProtectedEnds& ends,
                           const Judges& judges)
    : shape_(shape),
      kernels_(kernels),
      ends_(ends),
      judges_(judges),
      mean_output_(size_t{shape.n_lanes()} * shape.head_dim),
      n_slots_(shape.n_lanes()),
      last_spread_pos_(shape.n_lanes()) {
  if (judges.policy->wants_expectation()) {
    expected_.emplace(shape, rotation, ends.sink_tokens);
  }
}

void LaneEvidence::Observe(const LaneObservation& observation,
                           const float* query, const float* output,
                           SequencePages& pages) {
  const uint32_t lane = observation.lane;
  UpdateMeanOutput(lane, output, observation.tokens_since);
  IntroduceSlots(lane, observation.n_slots, pages);
  judges_.policy->Observe(observation);
  if (expected_.has_value()) {
    expected_->Observe(lane, observation.query_pos, query,
                       observation.tokens_since);
  }
  if (judges_.detector != nullptr) judges_.detector->Observe(observation);
  // Lanes keep their character for hundreds of tokens: one look in 16 is
  // enough to spread pages by.
  const uint32_t tokens_since = observation.query_pos - last_spread_pos_[lane];
  if (tokens_since >= kPageTokens) {
    judges_.spread->Observe(
        lane,
        ContestableMass(ends_, observation.mass_mean, observation.n_slots),
        tokens_since);
    last_spread_pos_[lane] = observation.query_pos;
  }
}

void LaneEvidence::TellExpectation(uint32_t lane, uint32_t n_tokens,
                                   uint32_t n_new, const SequencePages& pages,
                                   std::span<float> attention,
                                   std::span<float> logits) {
  if (!expected_.has_value()) return;
  if (!ExpectedAttention::IsDue(n_tokens, n_new)) return;
  expected_->Compute(lane, n_tokens, pages, attention, logits);
  judges_.policy->ObserveExpectation(lane, attention);
}

void LaneEvidence::UpdateMeanOutput(uint32_t lane, const float* output,
                                    uint32_t tokens_since) {
  // The first output ever is the mean itself.
  const float keep = n_slots_[lane] == 0
                         ? 0
                         : std::exp2(-static_cast<float>(tokens_since) /
                                     kOutputHalfLifeTokens);
  const float scale = (1 - keep) / static_cast<float>(shape_.group);
  const uint32_t d = shape_.head_dim;
  float* mean = &mean_output_[size_t{lane} * d];
  for (uint32_t c = 0; c < d; ++c) mean[c] *= keep;
  for (uint32_t g = 0; g < shape_.group; ++g) {
    for (uint32_t c = 0; c < d; ++c) mean[c] += scale * output[g * d + c];
  }
}

void LaneEvidence::IntroduceSlots(uint32_t lane, uint32_t n_slots,
                                  SequencePages& pages) {
  const float* mean = &mean_output_[size_t{lane} * shape_.head_dim];
  float norms[kPageTokens];
  float distances[kPageTokens];
  while (n_slots_[lane] < n_slots) {
    const uint32_t slot = n_slots_[lane];
    const uint32_t first = slot % kPageTokens;
    const uint32_t n = std::min(kPageTokens - first, n_slots - slot);
    const auto value_stats =
        kernels_.value_stats[static_cast<size_t>(pages.TypeOfSlot(slot))];
    value_stats(pages.PageOfSlot(lane, slot), first, first + n, shape_.head_dim,
                mean, norms, distances);
    AddSlots(lane, n, pages, norms, distances);
  }
}

void LaneEvidence::AddSlots(uint32_t lane, uint32_t n,
                            const SequencePages& pages, const float* norms,
                            const float* distances) {
  const uint32_t slot = n_slots_[lane];
  if (slot % kPageTokens == 0) {
    judges_.policy->AddPage(
        lane, pages.table(lane).first_positions()[slot / kPageTokens]);
    if (judges_.detector != nullptr) judges_.detector->AddPage(lane);
  }
  judges_.policy->AddSlots(lane, n, norms, distances);
  n_slots_[lane] += n;
}

void LaneEvidence::ExchangeState(StateStream& stream,
                                 const SequencePages& pages) {
  stream.Exchange(mean_output_);
  for (uint32_t lane = 0; lane < shape_.n_lanes(); ++lane) {
    uint32_t n_slots = n_slots_[lane];
    stream.ExchangeCount(n_slots, pages.table(lane).n_tokens());
    constexpr float kUnknown[kPageTokens] = {};
    while (n_slots_[lane] < n_slots) {
      AddSlots(lane, std::min(kPageTokens, n_slots - n_slots_[lane]), pages,
               kUnknown, kUnknown);
    }
  }
  stream.Exchange(last_spread_pos_);
  if (expected_.has_value()) expected_->ExchangeState(stream);
}

void LaneEvidence::RemovePage(uint32_t lane, uint32_t index) {
  judges_.policy->RemovePage(lane, index);
  if (judges_.detector != nullptr) judges_.detector->RemovePage(lane, index);
  n_slots_[lane] -= kPageTokens;
}

}  // namespace lkv
