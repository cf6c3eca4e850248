#include "policy/pattern_detector.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/check.h"

namespace lkv {
namespace {

constexpr float kFastHalfLifeTokens = 8;
constexpr float kSlowHalfLifeTokens = 64;
// Added to every page's share, so that no share is 0.
constexpr float kSmoothing = 1e-4f;
constexpr float kUnobserved = -1;

float SumPage(const float* mass) {
  float partial[4] = {};
  for (uint32_t i = 0; i < kPageTokens; i += 4) {
    for (uint32_t j = 0; j < 4; ++j) partial[j] += mass[i + j];
  }
  return (partial[0] + partial[2]) + (partial[1] + partial[3]);
}

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

void PatternDetector::Observe(const LaneObservation& observation) {
  const LaneRange pages = ContestablePages(options_.ends, observation.n_slots);
  CHECK(pages.end <= n_pages_[observation.lane]);
  const auto age = static_cast<float>(observation.tokens_since);
  const float keep_fast = std::exp2(-age / kFastHalfLifeTokens);
  const float keep_slow = std::exp2(-age / kSlowHalfLifeTokens);
  PageAverages* averages = averages_.of(observation.lane);
  uint32_t n_known = 0;
  float fast_sum = 0;
  float slow_sum = 0;
  for (uint32_t p = pages.begin; p < pages.end; ++p) {
    PageAverages& average = averages[p];
    float mass = SumPage(observation.mass_mean + size_t{p} * kPageTokens);
    const bool known = average.fast >= 0;
    if (!known && n_known == 0) {
      average = {mass, mass};
    } else if (!known) {
      // Just left the recent tokens. Starting from 0 would look like a change;
      // the mean of the pages before it is the same share in both averages.
      auto n = static_cast<float>(n_known);
      average = {fast_sum / n, slow_sum / n};
    }
    average.fast = keep_fast * average.fast + (1 - keep_fast) * mass;
    average.slow = keep_slow * average.slow + (1 - keep_slow) * mass;
    if (known) {
      ++n_known;
      fast_sum += average.fast;
      slow_sum += average.slow;
    }
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
