#include "trace/replay.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "policy/page_worth.h"
#include "policy/repacking.h"
#include "policy/tier_planner.h"
#include "trace/replay_meter.h"

namespace lkv {
namespace {

// What a policy kept, and the attention that it may see.
class Residents {
 public:
  Residents(const LaneTrace& trace, const ReplayOptions& options,
            EvictionPolicy& policy)
      : trace_(trace),
        options_(options),
        policy_(policy),
        is_resident_(trace.n_steps()),
        is_protected_(options.capacity_pages),
        first_pos_(options.capacity_pages),
        slot_attention_(size_t{options.capacity_pages} * kPageTokens),
        slot_score_(slot_attention_.size()),
        attention_(options.capacity_pages),
        score_(options.capacity_pages),
        victims_(slot_attention_.size()),
        moved_pages_(options.capacity_pages),
        moved_slots_(slot_attention_.size()),
        mass_max_(slot_attention_.size()),
        mass_mean_(slot_attention_.size()) {}

  // The token of `step` arrives.
  void Add(uint32_t step);
  // Its query pays attention; `step` has token rows.
  void Observe(uint32_t step);
  // `step` has an expectation, too.
  void Expect(uint32_t step);
  const std::vector<uint8_t>& is_resident() const { return is_resident_; }

 private:
  // What leaves so that a page can be opened.
  SlotMoves Choose(uint32_t step);
  void Evict(const SlotMoves& moves);
  // What the resident slots have of a row over all tokens goes to mass_mean_,
  // scaled to what it would have been over them alone: to sum to 1. Returns the
  // scale.
  float GatherMean(const float* row);

  const LaneTrace& trace_;
  const ReplayOptions& options_;
  EvictionPolicy& policy_;
  std::vector<uint32_t> positions_;    // of the resident slots
  std::vector<uint8_t> is_resident_;   // [tokens of the text]
  uint32_t n_observed_ = 0;            // tokens up to the last observation
  std::vector<uint8_t> is_protected_;  // scratch, as all below
  std::vector<uint32_t> first_pos_;
  std::vector<float> slot_attention_, slot_score_;
  std::vector<float> attention_, score_;
  std::vector<uint32_t> victims_, moved_pages_, moved_slots_;
  std::vector<float> mass_max_, mass_mean_;
};

void Residents::Add(uint32_t step) {
  if (step % kPageTokens == 0) {
    if (positions_.size() == size_t{options_.capacity_pages} * kPageTokens) {
      Evict(Choose(step));
    }
    policy_.AddPage(0, step);
  }
  const float norm = trace_.value_norm(step);
  const float distance = trace_.value_distance(step);
  policy_.AddSlots(0, 1, &norm, &distance);
  positions_.push_back(step);
  is_resident_[step] = 1;
}

SlotMoves Residents::Choose(uint32_t step) {
  const auto n_slots = static_cast<uint32_t>(positions_.size());
  const size_t n_pages = n_slots / kPageTokens;
  const std::span is_protected(is_protected_.data(), n_pages);
  const std::span attention(attention_.data(), n_pages);
  const std::span score(score_.data(), n_pages);
  const std::span slot_attention(slot_attention_.data(), n_slots);
  const std::span slot_score(slot_score_.data(), n_slots);
  for (size_t p = 0; p < n_pages; ++p) {
    first_pos_[p] = positions_[p * kPageTokens];
  }
  MarkProtectedPages(options_.ends, {}, std::span(first_pos_).first(n_pages),
                     n_slots, is_protected);
  ScorePages(policy_, 0, step,
             {.attention = slot_attention, .score = slot_score},
             {attention, score});
  if (options_.unit == EvictionUnit::kRepack) {
    return ChooseRepacking({.is_protected = is_protected,
                            .page_score = score,
                            .slot_attention = slot_attention,
                            .slot_score = slot_score,
                            .n_leave = 1,
                            .two_stage = policy_.two_stage()},
                           {.pages = moved_pages_,
                            .slots = moved_slots_,
                            .slot_victims = victims_});
  }
  const uint32_t n = ChooseVictims({.is_protected = is_protected,
                                    .attention = attention,
                                    .score = score,
                                    .n_leave = 1,
                                    .max_moves = 1,
                                    .two_stage = policy_.two_stage()},
                                   victims_);
  CHECK(n == 1);
  return {.pages = std::span(victims_).first(1), .slots = {}};
}

void Residents::Evict(const SlotMoves& moves) {
  for (uint32_t page : moves.pages) {
    for (uint32_t i = 0; i < kPageTokens; ++i) {
      is_resident_[positions_[size_t{page} * kPageTokens + i]] = 0;
    }
  }
  for (size_t i = 0; i < moves.slots.size(); ++i) {
    const uint32_t pos = positions_[moves.slots[i]];
    positions_[moves.target(i)] = pos;
    is_resident_[pos] = 1;
  }
  if (!moves.slots.empty()) policy_.MoveSlots(0, moves);
  // From the last on, so that no removal renumbers a page still to be removed.
  for (size_t i = moves.pages.size(); i > moves.slots.size() / kPageTokens;
       --i) {
    const uint32_t page = moves.pages[i - 1];
    const auto first = positions_.begin() + size_t{page} * kPageTokens;
    positions_.erase(first, first + kPageTokens);
    policy_.RemovePage(0, page);
  }
}

float Residents::GatherMean(const float* row) {
  float kept = 0;
  for (size_t slot = 0; slot < positions_.size(); ++slot) {
    mass_mean_[slot] = row[positions_[slot]];
    kept += mass_mean_[slot];
  }
  const float scale = kept > 0 ? 1 / kept : 0;
  for (size_t slot = 0; slot < positions_.size(); ++slot) {
    mass_mean_[slot] *= scale;
  }
  return scale;
}

void Residents::Observe(uint32_t step) {
  const LaneTrace::TokenRows rows = trace_.tokens(step);
  const size_t n_slots = positions_.size();
  const float scale = GatherMean(rows.mean);
  // Of the group's heads only the mean is known; a maximum cannot pass 1.
  for (size_t i = 0; i < n_slots; ++i) {
    mass_max_[i] = std::min(1.0f, scale * rows.max[positions_[i]]);
  }
  policy_.Observe({.lane = 0,
                   .query_pos = step,
                   .tokens_since = step + 1 - n_observed_,
                   .n_slots = static_cast<uint32_t>(n_slots),
                   .mass_max = mass_max_.data(),
                   .mass_mean = mass_mean_.data()});
  policy_.EndStep();
  n_observed_ = step + 1;
}

void Residents::Expect(uint32_t step) {
  GatherMean(trace_.expectation(step));
  policy_.ObserveExpectation(0, std::span(mass_mean_).first(positions_.size()));
}

}  // namespace

uint32_t MinReplayPages(const ProtectedEnds& ends) {
  // The newest tokens may begin in the middle of a page and end in another.
  return PagesOf(ends.sink_tokens) + PagesOf(ends.recent_tokens) + 2;
}

ReplaySums ReplayLane(const LaneTrace& trace, const ReplayOptions& options,
                      const LanePolicyFactory& make_policy) {
  CHECK(options.capacity_pages >= MinReplayPages(options.ends));
  const std::unique_ptr<EvictionPolicy> policy =
      make_policy({.n_lanes = 1, .pages_per_lane = options.capacity_pages});
  Residents residents(trace, options, *policy);
  ReplayMeter meter(trace, options);
  for (uint32_t step = 0; step < trace.n_steps(); ++step) {
    residents.Add(step);
    if (meter.Measures(step)) meter.Measure(step, residents.is_resident());
    if (HasTokenRows(step)) residents.Observe(step);
    if (policy->wants_expectation() && HasExpectation(step)) {
      residents.Expect(step);
    }
  }
  return meter.sums();
}

}  // namespace lkv
