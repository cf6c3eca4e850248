// Intervals by bootstrap: what a statistic of some samples (texts, windows)
// might have been on other ones.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace lkv {

struct Interval {
  double low = 0;
  double high = 0;
};

// Samples drawn with replacement, the same draws for every statistic: what
// differs between two policies is then compared on the same samples. Always the
// same draws for the same number of samples. Pure.
class Resamples {
 public:
  // Enough for the second digit of a 95 % interval.
  static constexpr uint32_t kDraws = 2000;

  // Requires n_samples > 0.
  explicit Resamples(size_t n_samples) {
    std::mt19937_64 random(1);
    for (std::vector<size_t>& draw : draws_) {
      for (size_t i = 0; i < n_samples; ++i) {
        draw.push_back(random() % n_samples);
      }
    }
  }

  // The middle 95 % of a statistic of the samples drawn: statistic(numbers of
  // the samples) -> double.
  template <typename Statistic>
  Interval Ci95(const Statistic& statistic) const {
    std::vector<double> values;
    values.reserve(kDraws);
    for (const std::vector<size_t>& draw : draws_) {
      values.push_back(statistic(draw));
    }
    std::sort(values.begin(), values.end());
    const auto at = [&](double share) {
      return values[static_cast<size_t>(share * (kDraws - 1))];
    };
    return {at(0.025), at(0.975)};
  }

 private:
  std::array<std::vector<size_t>, kDraws> draws_;
};

}  // namespace lkv
