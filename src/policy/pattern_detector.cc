#include "policy/pattern_detector.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/check.h"
#include "policy/page_totals.h"

namespace lkv {
namespace {

constexpr float kFastHalfLifeTokens = 8;
constexpr float kSlowHalfLifeTokens = 64;
// Added to every page's share, so that no share is 0.
constexpr float kSmoothing = 1e-4f;
// Contestable mass from which on a query's distribution counts in full; one
// with less counts in proportion.
constexpr float kFullMass = 0.04f;
constexpr float kUnobserved = -1;

// Median of `values`, which are reordered; the mean of the middle two when
// their number is even. Requires at least one.
double Median(std::span<float> values) {
  auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (double{*middle} + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

PatternDetector::PatternDetector(const Options& options,
                                 const PolicyCapacity& capacity)
    : options_(options),
      n_pages_(capacity.n_lanes),
      averages_(capacity, 1),
      divergence_(capacity.n_lanes, kUnobserved),
      median_scratch_(capacity.n_lanes) {
  CHECK(options.n_kv_heads > 0 && options.smoothing >= 0 &&
        options.smoothing < 1);
  uint32_t first_lane = kFirstLayer * options.n_kv_heads;
  first_lane_ = capacity.n_lanes > first_lane ? first_lane : 0;
}

void PatternDetector::AddPage(uint32_t lane) {
  averages_.of(lane)[n_pages_[lane]++] = {kUnobserved, kUnobserved};
}

void PatternDetector::RemovePage(uint32_t lane, uint32_t index) {
  CHECK(index < n_pages_[lane]);
  averages_.RemovePage(lane, index, n_pages_[lane]--);
}

void PatternDetector::ExchangeState(StateStream& stream) {
  for (uint32_t lane = 0; lane < n_pages_.size(); ++lane) {
    uint32_t n_pages = n_pages_[lane];
    stream.Exchange(n_pages);
    stream.Require(n_pages == n_pages_[lane]);
    averages_.ExchangeState(stream, lane, n_pages_[lane]);
  }
  stream.Exchange(divergence_);
  stream.Exchange(change_);
  stream.Exchange(has_change_);
}

void PatternDetector::Observe(const LaneObservation& observation) {
  const LaneRange pages = ContestablePages(options_.ends, observation.n_slots);
  CHECK(pages.end <= n_pages_[observation.lane]);
  const auto age = static_cast<float>(observation.tokens_since);
  const float keep_fast = std::exp2(-age / kFastHalfLifeTokens);
  const float keep_slow = std::exp2(-age / kSlowHalfLifeTokens);
  PageAverages* averages = averages_.of(observation.lane);
  float contestable = 0;
  for (uint32_t p = pages.begin; p < pages.end; ++p) {
    contestable += SumPage(observation.mass_mean + size_t{p} * kPageTokens);
  }
  const float scale = 1 / std::max(contestable, kFullMass);
  const auto share_of = [&](uint32_t p) {
    return scale * SumPage(observation.mass_mean + size_t{p} * kPageTokens);
  };
  auto update = [&](uint32_t p) {
    const float mass = share_of(p);
    averages[p].fast = keep_fast * averages[p].fast + (1 - keep_fast) * mass;
    averages[p].slow = keep_slow * averages[p].slow + (1 - keep_slow) * mass;
  };
  uint32_t known_end = pages.end;
  while (known_end > pages.begin && averages[known_end - 1].fast < 0) {
    --known_end;
  }
  for (uint32_t p = pages.begin; p < known_end; ++p) update(p);
  if (known_end == pages.end) return;

  // Pages that have just left the recent tokens. Starting from 0 would look
  // like a change; the mean of the pages before them is the same share in both
  // averages. The very first pages start with their own mass.
  PageAverages mean = {0, 0};
  for (uint32_t p = pages.begin; p < known_end; ++p) {
    mean.fast += averages[p].fast;
    mean.slow += averages[p].slow;
  }
  const auto n_known = static_cast<float>(known_end - pages.begin);
  for (uint32_t p = known_end; p < pages.end; ++p) {
    if (n_known > 0) {
      averages[p] = {mean.fast / n_known, mean.slow / n_known};
    } else {
      const float mass = share_of(p);
      averages[p] = {mass, mass};
    }
    update(p);
  }
}

void PatternDetector::Evaluate(uint32_t lane) {
  std::span<const PageAverages> averages(averages_.of(lane), n_pages_[lane]);
  uint32_t n = 0;
  float fast_sum = 0;
  float slow_sum = 0;
  for (const PageAverages& average : averages) {
    if (average.fast < 0) continue;
    ++n;
    fast_sum += average.fast;
    slow_sum += average.slow;
  }
  if (n < 2 || fast_sum <= 0 || slow_sum <= 0) {
    divergence_[lane] = kUnobserved;
    return;
  }
  const float total = 1 + static_cast<float>(n) * kSmoothing;
  double divergence = 0;
  for (const PageAverages& average : averages) {
    if (average.fast < 0) continue;
    float p = (average.fast / fast_sum + kSmoothing) / total;
    float q = (average.slow / slow_sum + kSmoothing) / total;
    if (options_.metric == ChangeMetric::kJensenShannon) {
      float mid = (p + q) / 2;
      divergence += (p * std::log(p / mid) + q * std::log(q / mid)) / 2;
    } else {
      divergence += p * std::log(p / q);
    }
  }
  // Rounding may leave -1e-8 for equal distributions.
  divergence_[lane] = std::max(0.0f, static_cast<float>(divergence));
}

double PatternDetector::Update() {
  uint32_t n = 0;
  for (size_t lane = first_lane_; lane < divergence_.size(); ++lane) {
    if (divergence_[lane] >= 0) median_scratch_[n++] = divergence_[lane];
  }
  if (n == 0) return change_;
  double median = Median(std::span(median_scratch_).first(n));
  double old_weight = has_change_ ? options_.smoothing : 0;
  change_ = old_weight * change_ + (1 - old_weight) * median;
  has_change_ = true;
  return change_;
}

}  // namespace lkv
