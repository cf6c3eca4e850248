#include "cache/expected_attention.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace lkv {
namespace {

// Adds to logits [kPageTokens] what a page's keys, turned back to the positions
// of the queries, would get in the mean: rows [head_dim][kPageTokens].
void AddExpectedLogits(const float* moments, uint32_t head_dim,
                       float inverse_weight, const float* rows, float* logits) {
  const float scale = 1 / std::sqrt(static_cast<float>(head_dim));
  const float* mean = moments;
  const float* row_of_c = moments + head_dim;
  const float half_variance = 0.5f * scale * scale * inverse_weight;
  for (uint32_t d = 0; d < head_dim; row_of_c += ++d) {
    const float* mine = rows + d * kPageTokens;
    // The covariance is symmetric: what stands before d counts twice.
    float sum[kPageTokens];
    for (uint32_t i = 0; i < kPageTokens; ++i) sum[i] = row_of_c[d] * mine[i];
    for (uint32_t e = 0; e < d; ++e) {
      const float twice = 2 * row_of_c[e];
      const float* other = rows + e * kPageTokens;
      for (uint32_t i = 0; i < kPageTokens; ++i) sum[i] += twice * other[i];
    }
    for (uint32_t i = 0; i < kPageTokens; ++i) {
      logits[i] += mine[i] * (scale * mean[d] + half_variance * sum[i]);
    }
  }
}

// The mean of exp(i frequency position) over kHorizonTokens positions from
// `first` on: the angle in the middle, shortened by what the angles differ.
struct MeanTurn {
  float cosine, sine;

  MeanTurn(double frequency, uint32_t first) {
    constexpr double n = ExpectedAttention::kHorizonTokens;
    const double half = frequency / 2;
    const double length = std::abs(std::sin(half)) < 1e-12
                              ? 1
                              : std::sin(n * half) / (n * std::sin(half));
    const double angle = frequency * (first + (n - 1) / 2);
    cosine = static_cast<float>(length * std::cos(angle));
    sine = static_cast<float>(length * std::sin(angle));
  }
};

// Adds 1 / n of the softmax of `logits`, which it overwrites.
void AddSoftmax(std::span<float> logits, uint32_t n, std::span<float> sum) {
  const float most = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float& logit : logits) {
    logit = std::exp(logit - most);
    total += logit;
  }
  if (!std::isfinite(total)) return;  // a key or a query was not finite
  const auto scale = static_cast<float>(1 / (total * n));
  for (size_t i = 0; i < logits.size(); ++i) sum[i] += scale * logits[i];
}

}  // namespace

ExpectedAttention::ExpectedAttention(const KvShape& shape,
                                     const Rotation& rotation,
                                     uint32_t sink_tokens)
    : shape_(shape),
      rotation_(rotation),
      sink_tokens_(sink_tokens),
      moments_(size_t{shape.n_lanes()} * shape.group *
               MomentFloats(shape.head_dim)),
      weight_(shape.n_lanes()) {
  CHECK(shape.head_dim <= kMaxHeadDim);
  CHECK(2 * rotation.frequencies.size() <= shape.head_dim);
}

ExpectedAttention::Pair ExpectedAttention::PairOf(uint32_t i) const {
  if (rotation_.order == RopeOrder::kNormal) {
    return {2 * i, 2 * i + 1};
  }
  return {i, i + static_cast<uint32_t>(rotation_.frequencies.size())};
}

void ExpectedAttention::Turn(const float* cosine, const float* sine,
                             uint32_t n_columns, float* rows) const {
  for (uint32_t i = 0; i < rotation_.frequencies.size(); ++i) {
    const Pair pair = PairOf(i);
    float* a = rows + pair.first * n_columns;
    float* b = rows + pair.second * n_columns;
    for (uint32_t column = 0; column < n_columns; ++column) {
      const float turned_a = cosine[i] * a[column] - sine[i] * b[column];
      b[column] = sine[i] * a[column] + cosine[i] * b[column];
      a[column] = turned_a;
    }
  }
}

void ExpectedAttention::Observe(uint32_t lane, uint32_t query_pos,
                                const float* q, uint32_t weight) {
  if (query_pos < sink_tokens_) return;
  const uint32_t n = shape_.head_dim;
  // Back to where the query came from.
  float cosine[kMaxHeadDim / 2];
  float sine[kMaxHeadDim / 2];
  for (size_t i = 0; i < rotation_.frequencies.size(); ++i) {
    const double angle = -rotation_.frequencies[i] * query_pos;
    cosine[i] = static_cast<float>(std::cos(angle));
    sine[i] = static_cast<float>(std::sin(angle));
  }
  const auto added = static_cast<float>(weight);
  const float share = added / (weight_[lane] + added);
  weight_[lane] += added;
  for (uint32_t head = 0; head < shape_.group; ++head) {
    // Welford's update: sums of squares would lose the covariance beside a
    // large mean.
    float delta[kMaxHeadDim];
    std::copy_n(q + head * n, n, delta);
    Turn(cosine, sine, 1, delta);
    float* mean = &moments_[MomentsAt(lane, head)];
    float* row_of_c = mean + n;
    for (uint32_t d = 0; d < n; ++d) {
      delta[d] -= mean[d];
      mean[d] += share * delta[d];
    }
    const float kept = added * (1 - share);
    for (uint32_t d = 0; d < n; row_of_c += ++d) {
      const float scaled = kept * delta[d];
      for (uint32_t e = 0; e <= d; ++e) row_of_c[e] += scaled * delta[e];
    }
  }
}

void ExpectedAttention::Compute(uint32_t lane, uint32_t n_tokens,
                                const SequencePages& pages,
                                std::span<float> attention,
                                std::span<float> logits) const {
  CHECK(logits.size() == attention.size());
  std::fill(attention.begin(), attention.end(), 0.0f);
  if (weight_[lane] == 0) return;
  const size_t n_sinks = std::min<size_t>(sink_tokens_, attention.size());
  if (n_sinks == attention.size()) return;
  // Turning a key back is turning the query forth.
  float cosine[kMaxHeadDim / 2];
  float sine[kMaxHeadDim / 2];
  for (size_t i = 0; i < rotation_.frequencies.size(); ++i) {
    const MeanTurn turn(rotation_.frequencies[i], n_tokens);
    cosine[i] = turn.cosine;
    sine[i] = -turn.sine;
  }
  const auto n_slots = static_cast<uint32_t>(attention.size());
  const float inverse_weight = 1 / weight_[lane];
  for (uint32_t head = 0; head < shape_.group; ++head) {
    const float* moments = &moments_[MomentsAt(lane, head)];
    for (uint32_t slot = 0; slot < n_slots; slot += kPageTokens) {
      float keys[kMaxHeadDim * kPageTokens];
      pages.ReadKeys(lane, slot / kPageTokens, keys);
      Turn(cosine, sine, kPageTokens, keys);
      float page_logits[kPageTokens] = {};
      AddExpectedLogits(moments, shape_.head_dim, inverse_weight, keys,
                        page_logits);
      std::copy_n(page_logits, std::min(kPageTokens, n_slots - slot),
                  logits.begin() + slot);
    }
    AddSoftmax(logits.subspan(n_sinks), shape_.group,
               attention.subspan(n_sinks));
  }
}

}  // namespace lkv
