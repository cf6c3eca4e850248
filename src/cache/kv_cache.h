// KvCache: keys and values of many sequences, behind the four calls that a
// forward pass needs. Usable without our model: any engine that brings q, k, v
// can drive it.
//
//   BeginStep            one caller; makes room (evicts), opens pages
//   per layer: Append    once for each head; writes the step's k, v
//              Attend    collective; attention over what is resident
//   EndStep              collective; observes, scores, plans evictions
//
// Collective calls are made by every member of the caller's thread team with
// the same arguments; they are phases of its run (base/thread_team.h). A decode
// step allocates nothing.
//
// Budgets: the resident payload plus metadata of a sequence never exceeds its
// budget, prefill included; BeginStep evicts or fails, it never overshoots.
//
// Thread rule: one engine thread (with its team) drives a cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/thread_team.h"
#include "base/types.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"
#include "policy/eviction_policy.h"
#include "policy/forecast_check.h"
#include "policy/recall_guard.h"

namespace lkv {

// The new tokens of one sequence in one step: 1 when decoding, a chunk in
// prefill. Positions continue where the sequence ended.
struct StepEntry {
  SequenceId sequence{};
  uint32_t n_tokens = 0;
};

// Rows of a step, one per new token, all entries after each other.
struct TokenRows {
  const float* data = nullptr;
  size_t stride = 0;  // floats from one token to the next
};

// What a sequence needs to be admitted.
struct SequenceOptions {
  CacheOptions cache;
  uint32_t prompt_tokens = 0;   // expected lengths; a share of the budget and
  uint32_t max_new_tokens = 0;  // the hybrid switch are computed from them
  // The longest that further turns may make the sequence (AnnounceTurn). No
  // more than the lengths above: there are none.
  uint32_t max_tokens = 0;
  std::vector<PositionRange> pinned;  // never evicted (system prompt, template)
  // Makes the policy; empty: the one that cache.policy names.
  std::function<std::unique_ptr<EvictionPolicy>(const PolicyCapacity&)>
      make_policy = {};
  // What the look-ahead policy forecasts by, one lane of it for each of the
  // cache; nullptr: by its moving average alone. Owned by all sequences that
  // forecast by it and by the engine's shelf (engine/predictors.h).
  std::shared_ptr<const HistoryNetwork> predictor = nullptr;
};

// Element type of the pages that a sequence with these options has.
inline KvType KvTypeOf(const CacheOptions& options) {
  switch (options.kv_type) {
    case KvTypeName::kF16:
      return KvType::kF16;
    case KvTypeName::kBF16:
      return KvType::kBF16;
    case KvTypeName::kInt8:
      return KvType::kInt8;
  }
  CHECK(false);
  return {};
}

struct SequenceStats {
  uint32_t n_tokens = 0;  // positions seen so far
  uint64_t budget_bytes = 0;
  // The most that it will hold of the text announced: its budget, or what
  // keeping everything takes.
  uint64_t fill_bytes = 0;
  uint64_t resident_bytes = 0;      // payload + metadata now
  uint64_t resident_bytes_max = 0;  // the most at any moment
  // Payload, part of resident_bytes, that other sequences hold, too: it is in
  // memory once.
  uint64_t shared_bytes = 0;
  // The most memory that it may still take for the text announced, what others
  // hold of its pages not counted.
  uint64_t growth_bytes = 0;
  uint64_t metadata_bytes = 0;  // part of resident_bytes that is not payload
  // Part of resident_bytes: coarse copies of tokens, their metadata included.
  uint64_t cold_bytes = 0;
  uint64_t full_bytes = 0;  // payload a full cache would hold now
  // Payload that attention read; a prompt reads everything.
  uint64_t read_bytes_last_step = 0;
  uint64_t evicted_tokens = 0;  // token-lanes / lanes, rounded
  uint32_t window_tokens = 0;   // the controller's target now
  double pattern_change = 0;    // smoothed, nats
  // How the trained network does that forecasts attention; none: there is no
  // network, or no policy that asks it.
  std::optional<ForecastCheck::Verdict> forecast;
  // How much is left out of what is read of coarse copies; none: nothing ever
  // leaves, or nobody looks.
  std::optional<RecallGuard> guard;
};

// One observed query of one lane, as the observer sees it.
struct AttentionSample {
  SequenceId sequence{};
  uint32_t layer = 0;
  uint32_t kv_head = 0;
  uint32_t query_pos = 0;
  uint32_t n_slots = 0;
  const float* mass_max = nullptr;   // [n_slots], position order of the lane
  const float* mass_mean = nullptr;  // [n_slots]
};

// Watches attention, for measurements. OnAttention runs on team members, for
// different lanes at the same time; it must not throw, nor run out of memory.
class AttentionObserver {
 public:
  virtual ~AttentionObserver() = default;
  virtual void OnAttention(const AttentionSample& sample) = 0;
  // Whether it wants to see every query of a prompt, at eight times the price.
  virtual bool WatchesAll() const { return false; }
};

class KvCache {
 public:
  virtual ~KvCache() = default;

  virtual const KvShape& shape() const = 0;

  // Admits a sequence. kInvalidArgument names the smallest legal budget when
  // the given one is below it; kOutOfMemory when the machine cannot hold it.
  virtual Result<SequenceId> AddSequence(const SequenceOptions& options) = 0;
  // Another sequence in the state of `parent`: the same text, pages, scores and
  // budget. From there on each goes its own way, as if it had read the text
  // alone; but the pages of the text are in memory once, until the last one
  // that holds them evicts them. Pages that are not full are copied when one of
  // the two goes on. Between steps. Copies the state of the policy; O(pages of
  // the longest text). kOutOfMemory as for AddSequence.
  virtual Result<SequenceId> ForkSequence(SequenceId parent) = 0;
  // The next turn of a sequence: prompt_tokens more to read, then up to
  // max_new_tokens more. Between steps. If that makes a longer text than was
  // expected so far, budget and window are computed anew for that text, as if
  // the sequence had been admitted for it; a hybrid window moves again until
  // half of it. Otherwise nothing changes, so a budget never falls.
  // kInvalidArgument when the text would pass the longest length of the
  // admission.
  virtual Status AnnounceTurn(SequenceId id, uint32_t prompt_tokens,
                              uint32_t max_new_tokens) = 0;
  // From now on the sequence keeps inside a smaller budget: what is over leaves
  // at once, by the policy, and what the next `room_tokens` tokens will need,
  // so that nothing else leaves while they come. Between steps. So a text can
  // be read whole and cut down after it. kInvalidArgument: below the smallest
  // for the text announced (a share is raised to it), or for more of it than
  // the one it has; or the policy is full. O(slots of all lanes).
  virtual Status ShrinkBudget(SequenceId id, const Budget& budget,
                              uint32_t room_tokens) = 0;
  // Frees all pages of the sequence that no other one shares, at once.
  virtual void RemoveSequence(SequenceId id) = 0;
  virtual SequenceStats Stats(SequenceId id) const = 0;
  // Positions still resident in one lane, ascending.
  virtual std::vector<uint32_t> ResidentPositions(SequenceId id, uint32_t layer,
                                                  uint32_t kv_head) const = 0;
  // Tokens the next prefill chunk of the sequence may hold: at most `wanted`,
  // ends at an absolute multiple of the chunk size, at most a quarter of a
  // budget that will not hold the whole text.
  virtual uint32_t ChunkTokens(SequenceId id, uint32_t wanted) const = 0;

  // Watches every observed query from now on; nullptr = none. In prefill the
  // observed ones are every 8th and the last 32 of a chunk.
  virtual void SetObserver(AttentionObserver* observer) = 0;

  virtual Status BeginStep(std::span<const StepEntry> entries) = 0;
  // k (after RoPE), v: [head_dim] per token, those of one head. Different heads
  // may be appended by different members at the same time, in a phase that
  // ends before Attend.
  virtual void Append(uint32_t layer, uint32_t kv_head, TokenRows k,
                      TokenRows v) = 0;
  // q (after RoPE, not scaled), out: [n_heads, head_dim] per token. Query head
  // h reads KV head h / group. Includes the step's own tokens, causally. q and
  // out do not overlap.
  virtual void Attend(TeamMember& me, uint32_t layer, TokenRows q, float* out,
                      size_t out_stride) = 0;
  virtual void EndStep(TeamMember& me) = 0;
};

}  // namespace lkv
