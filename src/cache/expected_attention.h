// ExpectedAttention: what the queries to come would pay each cached token, if
// they were drawn from the same distribution as those seen so far.
//
// Method: Expected Attention (arXiv 2510.00636). A query head's queries before
// RoPE are taken for normal, with the mean m and covariance C of those observed
// so far; the next kHorizonTokens positions turn them by R on average. A key k
// then has the expected weight exp(k R m / sqrt(d) + k R C R' k / (2 d)), over
// the sum of all but the sinks; a token's is the mean over the group.
//
// It serves a baseline. Per query head it takes 2,144 numbers at head_dim 64
// (8.4 KiB, the KV of 33 tokens of one lane), which count in the budget. An
// observed query costs 1 us a head; an expectation 1 us a slot of a lane with 3
// query heads, every kExpectEveryTokens tokens and at the end of a chunk, of
// all lanes in one step because a trace notes them together: 90 ms for 90 lanes
// of 1,024 slots.
//
// Thread rule: calls for different lanes may run at the same time. Allocates in
// the constructor only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "cache/rotation.h"
#include "cache/sequence_pages.h"
#include "policy/eviction_policy.h"

namespace lkv {

class ExpectedAttention {
 public:
  static constexpr uint32_t kHorizonTokens = 512;

  // The first sink_tokens slots always stay and take no part; nor do the
  // queries at their positions, which have nowhere else to look.
  ExpectedAttention(const KvShape& shape, const Rotation& rotation,
                    uint32_t sink_tokens);

  static size_t BytesPerLane(const KvShape& shape) {
    return (shape.group * MomentFloats(shape.head_dim) + 1) * sizeof(float);
  }
  // Whether there is an expectation when n_new tokens made n_tokens of a
  // sequence.
  static bool IsDue(uint32_t n_tokens, uint32_t n_new) {
    return n_new > 1 || n_tokens % kExpectEveryTokens == 0;
  }

  // An observed query of a lane, q [group, head_dim] after RoPE, that stands
  // for `weight` queries.
  void Observe(uint32_t lane, uint32_t query_pos, const float* q,
               uint32_t weight);

  // What the queries from position n_tokens on would pay the lane's slots, of
  // which there are attention.size(): the mean over the group, sums to 1 over
  // those that are no sinks.
  // logits [attention.size()] is scratch. 0 before any query was observed.
  void Compute(uint32_t lane, uint32_t n_tokens, const SequencePages& pages,
               std::span<float> attention, std::span<float> logits) const;

  void ExchangeState(StateStream& stream) {
    stream.Exchange(moments_);
    stream.Exchange(weight_);
  }

 private:
  // A query head's mean [head_dim], and its covariance times the weight so far,
  // of which row d has the columns up to d.
  static constexpr size_t MomentFloats(uint32_t head_dim) {
    return head_dim + size_t{head_dim} * (head_dim + 1) / 2;
  }
  // The rows of a pair of elements.
  struct Pair {
    uint32_t first, second;
  };
  Pair PairOf(uint32_t i) const;
  // Turns `rows` [head_dim][n_columns] by the angle whose cosine and sine are
  // given for each pair.
  void Turn(const float* cosine, const float* sine, uint32_t n_columns,
            float* rows) const;
  size_t MomentsAt(uint32_t lane, uint32_t head) const {
    return (size_t{lane} * shape_.group + head) * MomentFloats(shape_.head_dim);
  }

  const KvShape shape_;
  const Rotation rotation_;
  const uint32_t sink_tokens_;
  std::vector<float> moments_;  // [n_lanes, group, MomentFloats]
  std::vector<float> weight_;   // [n_lanes] of all queries observed
};

}  // namespace lkv
