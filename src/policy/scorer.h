// Scores: what the loss of one cached token would cost. Higher = keep. Pure
// functions of a prediction and one number about the token's value. A page is
// worth its best slot (lookahead_policy.h).
#pragma once

#include <cstdint>
#include <span>

namespace lkv {

// Sum of decay^t for t = 0 .. n_steps - 1: 3.44 for 4 steps of 0.9, 7.18 for
// 12.
inline float DecayWeightSum(uint32_t n_steps, float decay) {
  float sum = 0;
  float weight = 1;
  for (uint32_t t = 0; t < n_steps; ++t) {
    sum += weight;
    weight *= decay;
  }
  return sum;
}

// Mean of the attention predicted for the next steps, the nearer ones weighing
// more: sum_t decay^t a_t / sum_t decay^t. Divided by the sum of weights, so
// that scores, and thresholds on them, do not change with the number of steps.
// Requires at least one step.
inline float DecayedMean(std::span<const float> attention_by_step,
                         float decay) {
  float sum = 0;
  float weight = 1;
  for (float attention : attention_by_step) {
    sum += weight * attention;
    weight *= decay;
  }
  return sum /
         DecayWeightSum(static_cast<uint32_t>(attention_by_step.size()), decay);
}

// `value_norm`: |v| times the decayed mean. The first formula of look-ahead
// eviction; it rates a sink near 0 (large attention, tiny value), so sinks must
// be protected.
inline float ValueNormScore(float value_norm,
                            std::span<const float> attention_by_step,
                            float decay) {
  return value_norm * DecayedMean(attention_by_step, decay);
}

// What is left for the others when one token has all attention, so that it
// scores finitely: 1000 times one with half.
inline constexpr float kMinOtherAttention = 0.001f;

// `output_error`: a / (1 - a) |v - o|, exactly how far the attention output
// moves when a token of attention a and value v is left out and the rest is
// renormalised (CAOTE, arXiv 2504.14051). value_distance = |v - o| with o the
// lane's mean output.
inline float OutputErrorScore(float attention, float value_distance) {
  float others = 1 - attention;
  others = others > kMinOtherAttention ? others : kMinOtherAttention;
  return attention / others * value_distance;
}

}  // namespace lkv
