#include "trace/replay_oracles.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "policy/protection.h"
#include "trace/replay_meter.h"

namespace lkv {
namespace {

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

// Attention by the unit of eviction: of pages or of tokens, by position.
// nullptr where the trace has none of that step.
const float* MassOf(const LaneTrace& trace, EvictionUnit unit, uint32_t step) {
  if (unit == EvictionUnit::kPage) return trace.pages(step).mean;
  return HasTokenRows(step) ? trace.tokens(step).mean : nullptr;
}

// Adds `sign` times the attention of a step to what is to come.
void AddFuture(const LaneTrace& trace, uint32_t step, double sign,
               std::vector<double>& future) {
  if (!HasTokenRows(step)) return;
  const float* mass = trace.tokens(step).mean;
  for (uint32_t pos = 0; pos <= step; ++pos) future[pos] += sign * mass[pos];
}

ReplaySums ReplayFutureTokens(const LaneTrace& trace,
                              const ReplayOptions& options) {
  const uint32_t n_steps = trace.n_steps();
  std::vector<double> future(n_steps);
  for (uint32_t step = 0; step < n_steps; ++step) {
    AddFuture(trace, step, 1, future);
  }
  ReplayMeter meter(trace, options);
  std::vector<uint8_t> is_resident(n_steps);
  uint32_t n_resident = 0;
  std::vector<uint32_t> candidates;
  for (uint32_t step = 0; step < n_steps; ++step) {
    if (n_resident == options.capacity_pages * kPageTokens) {
      // As a page is opened, of what is contestable before it.
      const LaneRange range = ContestablePages(options.ends, step);
      candidates.clear();
      for (uint32_t pos = range.begin * kPageTokens;
           pos < range.end * kPageTokens; ++pos) {
        if (is_resident[pos] != 0) candidates.push_back(pos);
      }
      CHECK(candidates.size() >= kPageTokens);
      std::nth_element(candidates.begin(), candidates.begin() + kPageTokens,
                       candidates.end(), [&](uint32_t a, uint32_t b) {
                         return future[a] != future[b] ? future[a] < future[b]
                                                       : a < b;
                       });
      for (uint32_t i = 0; i < kPageTokens; ++i) is_resident[candidates[i]] = 0;
      n_resident -= kPageTokens;
    }
    is_resident[step] = 1;
    ++n_resident;
    if (meter.Measures(step)) meter.Measure(step, is_resident);
    AddFuture(trace, step, -1, future);  // a step is past
  }
  return meter.sums();
}

}  // namespace

ReplaySums ReplayWithReturn(const LaneTrace& trace,
                            const ReplayOptions& options, uint32_t horizon) {
  CHECK(horizon > 0 && options.capacity_pages >= MinReplayPages(options.ends));
  const uint32_t n_steps = trace.n_steps();
  const uint32_t unit_tokens = UnitTokens(options.unit);
  const uint32_t units_per_page = kPageTokens / unit_tokens;
  ReplayMeter meter(trace, options);
  std::vector<uint8_t> is_resident(n_steps);
  std::vector<float> mass(size_t{PagesOf(n_steps)} * units_per_page);
  std::vector<uint32_t> order;
  for (uint32_t first = 0; first < n_steps; first += horizon) {
    const uint32_t end = std::min(n_steps, first + horizon);
    const LaneRange pages = ContestablePages(options.ends, first + 1);
    const LaneRange range = {.begin = pages.begin * units_per_page,
                             .end = pages.end * units_per_page};
    std::fill(mass.begin(), mass.end(), 0.0f);
    for (uint32_t step = first; step < end; ++step) {
      const float* row = MassOf(trace, options.unit, step);
      if (row == nullptr) continue;
      for (uint32_t u = range.begin; u < range.end; ++u) mass[u] += row[u];
    }
    // What is protected now or will arrive until the next choice has its place.
    const uint32_t n_other_pages = PagesOf(end) - pages.count();
    const uint32_t n_chosen = std::min(
        range.count(),
        units_per_page * (options.capacity_pages -
                          std::min(options.capacity_pages, n_other_pages)));
    order.resize(range.count());
    std::iota(order.begin(), order.end(), range.begin);
    std::nth_element(order.begin(), order.begin() + n_chosen, order.end(),
                     [&mass](uint32_t a, uint32_t b) {
                       return mass[a] != mass[b] ? mass[a] > mass[b] : a > b;
                     });
    std::fill(is_resident.begin(), is_resident.end(), uint8_t{1});
    for (uint32_t i = n_chosen; i < order.size(); ++i) {
      std::fill_n(is_resident.begin() + size_t{order[i]} * unit_tokens,
                  unit_tokens, uint8_t{0});
    }
    for (uint32_t step = first; step < end; ++step) {
      if (meter.Measures(step)) meter.Measure(step, is_resident);
    }
  }
  return meter.sums();
}

ReplaySums ReplayFuture(const LaneTrace& trace, const ReplayOptions& options) {
  CHECK(options.capacity_pages >= MinReplayPages(options.ends));
  return options.unit == EvictionUnit::kPage
             ? ReplayLane(trace, options, FutureOracle(trace))
             : ReplayFutureTokens(trace, options);
}

LanePolicyFactory FutureOracle(const LaneTrace& trace) {
  return [&trace](const PolicyCapacity&) {
    return std::make_unique<FutureOraclePolicy>(trace);
  };
}

}  // namespace lkv
