#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace lkv {
namespace {

// The pairs between which YaRN fades from the trained frequencies (fast pairs,
// which turned many times within the trained length) to interpolated ones
// (slow pairs, which never finished a turn and must not meet new angles).
struct YarnRamp {
  double first = 0;
  double last = 0;

  explicit YarnRamp(const RopeOptions& options) {
    const double n = options.n_rotated;
    // The pair, as a real number, that turns n_turns times within the trained
    // length: solves original_context * base^(-2 pair / n) = 2 pi n_turns.
    auto pair_of_turns = [&](double n_turns) {
      return n *
             std::log(options.original_context /
                      (2 * std::numbers::pi * n_turns)) /
             (2 * std::log(double{options.frequency_base}));
    };
    first = std::max(0.0, std::floor(pair_of_turns(options.yarn_beta_fast)));
    last = std::min(n - 1, std::ceil(pair_of_turns(options.yarn_beta_slow)));
  }

  // Share of the trained frequency that pair i keeps: 1 for fast pairs.
  double Keep(uint32_t i) const {
    const double width = std::max(0.001, last - first);
    return 1 - std::clamp((i - first) / width, 0.0, 1.0);
  }
};

}  // namespace

RopeTable::RopeTable(const RopeOptions& options)
    : order_(options.order),
      frequencies_(options.n_rotated / 2),
      magnitude_(options.attention_factor) {
  CHECK(options.n_rotated % 2 == 0);
  CHECK(options.frequency_factors.empty() ||
        options.frequency_factors.size() == frequencies_.size());
  for (uint32_t i = 0; i < n_pairs(); ++i) {
    frequencies_[i] =
        std::pow(double{options.frequency_base}, -2.0 * i / options.n_rotated);
    if (!options.frequency_factors.empty()) {
      frequencies_[i] /= options.frequency_factors[i];
    }
  }
  if (options.scaling == RopeScaling::kNone) return;

  const double factor = options.factor;
  if (options.scaling == RopeScaling::kLinear) {
    for (double& frequency : frequencies_) frequency /= factor;
    return;
  }
  const YarnRamp ramp(options);
  for (uint32_t i = 0; i < n_pairs(); ++i) {
    const double keep = ramp.Keep(i);
    frequencies_[i] *= keep + (1 - keep) / factor;
  }
  // Attention over a longer context is flatter; longer queries and keys make
  // up for it (YaRN, equation 22).
  if (factor > 1) magnitude_ *= 1 + 0.1 * std::log(factor);
}

void RopeTable::Angles(uint32_t position, float* cosine, float* sine) const {
  for (uint32_t i = 0; i < n_pairs(); ++i) {
    const double angle = position * frequencies_[i];
    cosine[i] = static_cast<float>(std::cos(angle) * magnitude_);
    sine[i] = static_cast<float>(std::sin(angle) * magnitude_);
  }
}

void RotateHead(RopeOrder order, const float* cosine, const float* sine,
                uint32_t n_pairs, float* head) {
  const bool neox = order == RopeOrder::kNeox;
  for (uint32_t i = 0; i < n_pairs; ++i) {
    float& a = neox ? head[i] : head[2 * i];
    float& b = neox ? head[i + n_pairs] : head[2 * i + 1];
    const float turned_a = a * cosine[i] - b * sine[i];
    const float turned_b = a * sine[i] + b * cosine[i];
    a = turned_a;
    b = turned_b;
  }
}

}  // namespace lkv
