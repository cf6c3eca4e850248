// LaneEvidence: passes what attention shows about a sequence's lanes on to
// those who judge by it: the policy (every page's worth), the pattern detector
// (has the text turned?) and the spread of pages over lanes.
//
// A policy that wants expectations is told those, too (expected_attention.h);
// what they are made of is kept only then.
//
// It keeps per lane the mean output of attention, a moving average with a
// half-life of 64 tokens: the distance of a value from it is what the loss of
// the value would change.
//
// Thread rule: calls for different lanes may run at the same time. Allocates in
// the constructor only. Cost per observed query: O(slots of the lane), and for
// expectations O(group * head_dim^2).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "cache/expected_attention.h"
#include "cache/sequence_pages.h"
#include "kernels/kernel_table.h"
#include "policy/eviction_policy.h"
#include "policy/lane_spread.h"
#include "policy/pattern_detector.h"
#include "policy/protection.h"

namespace lkv {

class LaneEvidence {
 public:
  static constexpr float kOutputHalfLifeTokens = 64;
  // Bytes per lane: the mean output, two counters and, for a policy that wants
  // expectations, what they are made of.
  static size_t BytesPerLane(const KvShape& shape,
                             const EvictionPolicy& policy) {
    return shape.head_dim * sizeof(float) + 2 * sizeof(uint32_t) +
           (policy.wants_expectation() ? ExpectedAttention::BytesPerLane(shape)
                                       : 0);
  }

  // Whom it tells. Borrowed; all outlive it.
  struct Judges {
    EvictionPolicy* policy;
    PatternDetector* detector;  // or nullptr
    LaneSpread* spread;
  };

  LaneEvidence(const KvShape& shape, const KernelTable& kernels,
               const Rotation& rotation, const ProtectedEnds& ends,
               const Judges& judges);
  // What `other` has gathered, for other judges.
  LaneEvidence(const LaneEvidence& other, const Judges& judges)
      : LaneEvidence(other) {
    judges_ = judges;
  }

  // One observed query of a lane: itself and its attention output [group,
  // head_dim], and the masses of the slots that it saw. Slots that are new
  // since the last call are introduced first; they are the newest of the
  // n_slots seen.
  void Observe(const LaneObservation& observation, const float* query,
               const float* output, SequencePages& pages);
  // A step of n_new tokens has made n_tokens of the sequence: tells the policy,
  // if it wants to know and the time has come, what it may expect. attention
  // and logits [slots of the lane] are scratch.
  void TellExpectation(uint32_t lane, uint32_t n_tokens, uint32_t n_new,
                       const SequencePages& pages, std::span<float> attention,
                       std::span<float> logits);
  // Its own. Reading, policy and detector are told of the pages and slots that
  // it has introduced, and of nothing that these are worth.
  void ExchangeState(StateStream& stream, const SequencePages& pages);
  // Page `index` of the lane leaves.
  void RemovePage(uint32_t lane, uint32_t index);

 private:
  LaneEvidence(const LaneEvidence&) = default;

  void UpdateMeanOutput(uint32_t lane, const float* output,
                        uint32_t tokens_since);
  // Tells of n slots of a lane from its first unknown one on, within a page.
  void AddSlots(uint32_t lane, uint32_t n, const SequencePages& pages,
                const float* norms, const float* distances);
  void IntroduceSlots(uint32_t lane, uint32_t n_slots, SequencePages& pages);

  const KvShape shape_;
  const KernelTable& kernels_;
  const ProtectedEnds ends_;
  Judges judges_;
  std::vector<float> mean_output_;         // [n_lanes, head_dim]
  std::vector<uint32_t> n_slots_;          // [n_lanes] introduced so far
  std::vector<uint32_t> last_spread_pos_;  // [n_lanes]
  std::optional<ExpectedAttention> expected_;
};

}  // namespace lkv
