#include "trace/replay.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "policy/heavy_hitters.h"
#include "policy/page_worth.h"
#include "policy/tier_planner.h"

namespace lkv {
namespace {

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Adds up what a cache had of the steps' attention.
class Meter {
 public:
  Meter(const LaneTrace& trace, const ReplayOptions& options)
      : trace_(trace), options_(options), scratch_(trace.n_steps()) {}

  // Whether the text up to this step is longer than what may stay: before, a
  // cache has everything.
  bool Measures(uint32_t step) const {
    return PagesOf(step + 1) > options_.capacity_pages;
  }
  // is_resident: [PagesOf(step + 1)], by position.
  void Measure(uint32_t step, const std::vector<uint8_t>& is_resident);
  const ReplaySums& sums() const { return sums_; }

 private:
  void MeasureTokens(uint32_t step, const std::vector<uint8_t>& is_resident);

  const LaneTrace& trace_;
  const ReplayOptions& options_;
  std::vector<float> scratch_;
  ReplaySums sums_;
};

void Meter::Measure(uint32_t step, const std::vector<uint8_t>& is_resident) {
  const float* mass = trace_.pages(step).mean;
  const LaneRange range = ContestablePages(options_.ends, step + 1);
  for (uint32_t page = 0; page < PagesOf(step + 1); ++page) {
    const double hit = is_resident[page] != 0 ? mass[page] : 0;
    sums_.all += mass[page];
    sums_.all_hit += hit;
    if (page < range.begin || page >= range.end) continue;
    sums_.contestable += mass[page];
    sums_.contestable_hit += hit;
  }
  if (HasTokenRows(step)) MeasureTokens(step, is_resident);
}

void Meter::MeasureTokens(uint32_t step,
                          const std::vector<uint8_t>& is_resident) {
  const LaneRange range = ContestablePages(options_.ends, step + 1);
  const uint32_t begin = range.begin * kPageTokens;
  const uint32_t n_tokens = range.count() * kPageTokens;
  const uint32_t n_resident =
      kPageTokens * static_cast<uint32_t>(std::accumulate(
                        &is_resident[range.begin], &is_resident[range.end], 0));
  const float* mass = trace_.tokens(step).mean + begin;
  HeavyHitters needed = FindHeavyHitters({mass, n_tokens}, kUsedMassShare,
                                         std::max(1u, n_resident), scratch_);
  if (needed.count() == 0) return;
  const uint32_t n_needed = needed.count();
  uint32_t n_hit = 0;
  for (uint32_t i = 0; i < n_tokens; ++i) {
    bool is_needed = mass[i] > needed.threshold;
    if (mass[i] == needed.threshold && needed.n_at_threshold > 0) {
      --needed.n_at_threshold;
      is_needed = true;
    }
    if (is_needed) n_hit += is_resident[range.begin + i / kPageTokens];
  }
  sums_.n_needed += n_needed;
  sums_.n_needed_hit += n_hit;
  sums_.topk_ratios += Ratio(n_hit, n_needed);
  ++sums_.n_topk_ratios;
}

// The pages that a policy kept, and the attention that it may see.
class Residents {
 public:
  Residents(const LaneTrace& trace, const ReplayOptions& options,
            EvictionPolicy& policy)
      : trace_(trace),
        options_(options),
        policy_(policy),
        is_resident_(PagesOf(trace.n_steps())),
        is_protected_(options.capacity_pages),
        slot_attention_(size_t{options.capacity_pages} * kPageTokens),
        slot_score_(slot_attention_.size()),
        attention_(options.capacity_pages),
        score_(options.capacity_pages),
        victims_(options.capacity_pages),
        mass_max_(size_t{options.capacity_pages} * kPageTokens),
        mass_mean_(mass_max_.size()) {}

  // The token of `step` arrives.
  void Add(uint32_t step);
  // Its query pays attention; `step` has token rows.
  void Observe(uint32_t step);
  const std::vector<uint8_t>& is_resident() const { return is_resident_; }

 private:
  void EvictOne(uint32_t step);

  const LaneTrace& trace_;
  const ReplayOptions& options_;
  EvictionPolicy& policy_;
  std::vector<uint32_t> first_pos_;   // of the resident pages, ascending
  std::vector<uint8_t> is_resident_;  // [pages of the text]
  uint32_t n_slots_ = 0;
  uint32_t n_observed_ = 0;            // tokens up to the last observation
  std::vector<uint8_t> is_protected_;  // scratch, as all below
  std::vector<float> slot_attention_, slot_score_;
  std::vector<float> attention_, score_;
  std::vector<uint32_t> victims_;
  std::vector<float> mass_max_, mass_mean_;
};

void Residents::Add(uint32_t step) {
  if (step % kPageTokens == 0) {
    if (first_pos_.size() == options_.capacity_pages) EvictOne(step);
    policy_.AddPage(0, step);
    first_pos_.push_back(step);
    is_resident_[step / kPageTokens] = 1;
  }
  const float norm = trace_.value_norm(step);
  const float distance = trace_.value_distance(step);
  policy_.AddSlots(0, 1, &norm, &distance);
  ++n_slots_;
}

void Residents::EvictOne(uint32_t step) {
  const size_t n_pages = first_pos_.size();
  const std::span is_protected(is_protected_.data(), n_pages);
  const std::span attention(attention_.data(), n_pages);
  const std::span score(score_.data(), n_pages);
  MarkProtectedPages(options_.ends, {}, first_pos_, n_slots_, is_protected);
  ScorePages(policy_, 0, step,
             {.attention = std::span(slot_attention_).first(n_slots_),
              .score = std::span(slot_score_).first(n_slots_)},
             {attention, score});
  const uint32_t n = ChooseVictims({.is_protected = is_protected,
                                    .attention = attention,
                                    .score = score,
                                    .n_leave = 1,
                                    .max_moves = 1,
                                    .two_stage = policy_.two_stage()},
                                   victims_);
  CHECK(n == 1);
  const uint32_t index = victims_[0];
  is_resident_[first_pos_[index] / kPageTokens] = 0;
  first_pos_.erase(first_pos_.begin() + index);
  policy_.RemovePage(0, index);
  n_slots_ -= kPageTokens;
}

void Residents::Observe(uint32_t step) {
  const LaneTrace::TokenRows rows = trace_.tokens(step);
  float kept = 0;
  uint32_t slot = 0;
  for (uint32_t first : first_pos_) {
    const uint32_t end = std::min(first + kPageTokens, step + 1);
    for (uint32_t pos = first; pos < end; ++pos, ++slot) {
      mass_max_[slot] = rows.max[pos];
      mass_mean_[slot] = rows.mean[pos];
      kept += rows.mean[pos];
    }
  }
  CHECK(slot == n_slots_);
  // Attention over these slots alone would have summed to 1. (Of the group's
  // heads only the mean is known; a maximum cannot pass 1.)
  const float scale = kept > 0 ? 1 / kept : 0;
  for (uint32_t i = 0; i < n_slots_; ++i) {
    mass_max_[i] = std::min(1.0f, scale * mass_max_[i]);
    mass_mean_[i] *= scale;
  }
  policy_.Observe({.lane = 0,
                   .query_pos = step,
                   .tokens_since = step + 1 - n_observed_,
                   .n_slots = n_slots_,
                   .mass_max = mass_max_.data(),
                   .mass_mean = mass_mean_.data()});
  policy_.EndStep();
  n_observed_ = step + 1;
}

// Knows the attention of all steps to come.
class FutureOraclePolicy final : public EvictionPolicy {
 public:
  explicit FutureOraclePolicy(const LaneTrace& trace)
      : trace_(trace), future_(PagesOf(trace.n_steps())) {
    for (uint32_t step = 0; step < trace.n_steps(); ++step) {
      const float* mass = trace.pages(step).mean;
      for (uint32_t p = 0; p < PagesOf(step + 1); ++p) future_[p] += mass[p];
    }
  }

  std::string_view name() const override { return "oracle_future"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<FutureOraclePolicy>(*this);
  }
  size_t bytes_per_page() const override { return 0; }
  void AddPage(uint32_t, uint32_t first_pos) override {
    first_pos_.push_back(first_pos);
  }
  void AddSlots(uint32_t, uint32_t n, const float*, const float*) override {
    for (; n > 0; --n, ++n_steps_) {  // a step is past
      const float* mass = trace_.pages(n_steps_).mean;
      for (uint32_t p = 0; p < PagesOf(n_steps_ + 1); ++p)
        future_[p] -= mass[p];
    }
  }
  void Observe(const LaneObservation&) override {}
  // All slots of a page as much as the page.
  void ScoreSlots(uint32_t, uint32_t, const SlotScores& out) const override {
    for (size_t i = 0; i < out.score.size(); ++i) {
      const uint32_t page = first_pos_[i / kPageTokens] / kPageTokens;
      out.score[i] = out.attention[i] = static_cast<float>(future_[page]);
    }
  }
  PageWorth page_worth() const override { return PageWorth::kBest; }
  void MoveSlots(uint32_t, const SlotMoves&) override { CHECK(false); }
  void RemovePage(uint32_t, uint32_t index) override {
    first_pos_.erase(first_pos_.begin() + index);
  }

 private:
  const LaneTrace& trace_;
  std::vector<double> future_;  // [pages of the text]
  std::vector<uint32_t> first_pos_;
  uint32_t n_steps_ = 0;
};

}  // namespace

ReplaySums& ReplaySums::operator+=(const ReplaySums& other) {
  contestable += other.contestable;
  contestable_hit += other.contestable_hit;
  all += other.all;
  all_hit += other.all_hit;
  topk_ratios += other.topk_ratios;
  n_topk_ratios += other.n_topk_ratios;
  n_needed += other.n_needed;
  n_needed_hit += other.n_needed_hit;
  return *this;
}

double ReplaySums::mass_hit() const {
  return Ratio(contestable_hit, contestable);
}
double ReplaySums::raw_hit() const { return Ratio(all_hit, all); }
double ReplaySums::topk_hit() const {
  return Ratio(topk_ratios, static_cast<double>(n_topk_ratios));
}
double ReplaySums::byte_hit() const {
  return Ratio(static_cast<double>(n_needed_hit),
               static_cast<double>(n_needed));
}

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
  Meter meter(trace, options);
  for (uint32_t step = 0; step < trace.n_steps(); ++step) {
    residents.Add(step);
    if (meter.Measures(step)) meter.Measure(step, residents.is_resident());
    if (HasTokenRows(step)) residents.Observe(step);
  }
  return meter.sums();
}

ReplaySums ReplayWithReturn(const LaneTrace& trace,
                            const ReplayOptions& options, uint32_t horizon) {
  CHECK(horizon > 0 && options.capacity_pages >= MinReplayPages(options.ends));
  const uint32_t n_steps = trace.n_steps();
  Meter meter(trace, options);
  std::vector<uint8_t> is_resident(PagesOf(n_steps));
  std::vector<float> mass(is_resident.size());
  std::vector<uint32_t> order;
  for (uint32_t first = 0; first < n_steps; first += horizon) {
    const uint32_t end = std::min(n_steps, first + horizon);
    const LaneRange range = ContestablePages(options.ends, first + 1);
    std::fill(mass.begin(), mass.end(), 0.0f);
    for (uint32_t step = first; step < end; ++step) {
      const float* row = trace.pages(step).mean;
      for (uint32_t p = range.begin; p < range.end; ++p) mass[p] += row[p];
    }
    // What is protected now or will arrive until the next choice has its place.
    const uint32_t n_others = PagesOf(end) - range.count();
    const uint32_t n_chosen =
        std::min(range.count(), options.capacity_pages -
                                    std::min(options.capacity_pages, n_others));
    order.resize(range.count());
    std::iota(order.begin(), order.end(), range.begin);
    std::nth_element(order.begin(), order.begin() + n_chosen, order.end(),
                     [&mass](uint32_t a, uint32_t b) {
                       return mass[a] != mass[b] ? mass[a] > mass[b] : a > b;
                     });
    std::fill(is_resident.begin(), is_resident.end(), uint8_t{1});
    for (uint32_t i = n_chosen; i < order.size(); ++i)
      is_resident[order[i]] = 0;
    for (uint32_t step = first; step < end; ++step) {
      if (meter.Measures(step)) meter.Measure(step, is_resident);
    }
  }
  return meter.sums();
}

LanePolicyFactory FutureOracle(const LaneTrace& trace) {
  return [&trace](const PolicyCapacity&) {
    return std::make_unique<FutureOraclePolicy>(trace);
  };
}

}  // namespace lkv
