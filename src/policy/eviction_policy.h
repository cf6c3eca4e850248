// EvictionPolicy: what the author of a policy writes.
//
// A policy watches the attention that resident tokens get and says what each
// page is worth. It never sees bytes of payload, tiers, files or threads. State
// is flat arrays per lane in the lane's page order (position order), so that a
// lane range can be worked on by any thread: calls for different lanes may run
// at the same time, calls for one lane may not.
//
// Pure: no I/O, no clock, no lock; after construction nothing allocates. Same
// calls, same answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/state_stream.h"
#include "base/types.h"
#include "kernels/kernel_table.h"
#include "lookaheadkv/options.h"
#include "policy/forecast_check.h"
#include "policy/history_network.h"

namespace lkv {

// Sizes a policy's arrays are made for.
struct PolicyCapacity {
  uint32_t n_lanes = 0;
  uint32_t pages_per_lane = 0;  // most pages a lane may ever hold at once
};

// What one query token paid to the resident slots of one lane.
struct LaneObservation {
  uint32_t lane = 0;
  uint32_t query_pos = 0;            // position of the query
  uint32_t tokens_since = 1;         // tokens since the lane's last observation
  uint32_t n_slots = 0;              // resident slots, in page order
  const float* mass_max = nullptr;   // [n_slots] group max of the weights
  const float* mass_mean = nullptr;  // [n_slots] group mean
};

// Tokens between two expectations that a lane is told.
inline constexpr uint32_t kExpectEveryTokens = 64;

// What each slot of a lane is worth; higher = keep. [n_slots] each.
struct SlotScores {
  std::span<float> attention;  // first stage: predicted attention alone
  std::span<float> score;      // second stage: what the loss would change
};

// What a page is worth, by what its slots are: where one token that must stay
// counts for more than sixteen that may, its best slot.
enum class PageWorth { kSum, kBest };

// Slots of some pages of a lane that move together into the first of these.
// Both ascending; slots.size() is a multiple of kPageTokens and less than
// pages.size() * kPageTokens. Slot slots[i] becomes slot i % kPageTokens of
// page pages[i / kPageTokens], which it never stands before: moving them in
// order overwrites nothing that is still needed.
struct SlotMoves {
  std::span<const uint32_t> pages;
  std::span<const uint32_t> slots;

  uint32_t target(size_t i) const {
    return pages[i / kPageTokens] * kPageTokens +
           static_cast<uint32_t>(i % kPageTokens);
  }
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  virtual std::string_view name() const = 0;
  // Another policy in the same state, which goes its own way from here.
  virtual std::unique_ptr<EvictionPolicy> Clone() const = 0;
  // All that it knows, for one of the same options and number of lanes that has
  // been told of the same pages and slots and nothing else; lanes may have
  // other capacities. By default it cannot leave its process: the stream fails.
  virtual void ExchangeState(StateStream& stream) { stream.Fail(); }
  // Bytes of state per page of a lane; charged to the budget.
  virtual size_t bytes_per_page() const = 0;
  // Whether half of what stays is chosen by `attention` alone, before `score`
  // fills the rest (two-stage, after CriticalKV).
  virtual bool two_stage() const { return false; }

  // A page was opened at the end of the lane's table; its slots will hold
  // positions first_pos, first_pos + 1, ...
  virtual void AddPage(uint32_t lane, uint32_t first_pos) = 0;
  // `n` tokens were written to the lane's newest slots. value_norms: |v|;
  // value_distances: |v - mean output of the lane|. May cross pages.
  virtual void AddSlots(uint32_t lane, uint32_t n, const float* value_norms,
                        const float* value_distances) = 0;
  virtual void Observe(const LaneObservation& observation) = 0;
  // All lanes have observed what they will of this step. Returns whether scores
  // mean something else from here on. One caller, apart from all other calls.
  virtual bool EndStep() { return false; }
  // Whether it is to be told expectations; always the same.
  virtual bool wants_expectation() const { return false; }
  // What the queries to come are expected to pay each resident slot of the lane
  // (group means), by the queries and the keys so far. Sums to 1; sinks have 0,
  // and all slots before there was a query to go by, or where numbers are not
  // finite. Told behind Observe when a step makes the sequence a multiple of
  // kExpectEveryTokens long, and when it brings several tokens.
  virtual void ObserveExpectation(uint32_t /*lane*/,
                                  std::span<const float> /*attention*/) {}
  // Whether a trained network may have a part in the scores, if there is one.
  // Returns whether scores mean something else from here on.
  virtual bool AllowNetwork(bool /*allowed*/) { return false; }
  // How the trained network does that has a part in the scores; nullptr: there
  // is none.
  virtual const ForecastCheck::Verdict* forecast() const { return nullptr; }
  // Fills the scores of all slots of the lane as of position `now_pos`.
  // O(slots of the lane). Policies without two stages fill both alike.
  virtual void ScoreSlots(uint32_t lane, uint32_t now_pos,
                          const SlotScores& out) const = 0;
  virtual PageWorth page_worth() const { return PageWorth::kSum; }
  // The slots of some full pages were sorted anew. The pages that are empty
  // then leave by RemovePage.
  virtual void MoveSlots(uint32_t lane, const SlotMoves& moves) = 0;
  // Page `index` of the lane left; later pages move down by one.
  virtual void RemovePage(uint32_t lane, uint32_t index) = 0;
};

// Makes the policy that `options` names (kFull never evicts: nullptr). Requires
// another than kRepeat, which ranks by what its maker observes.
// `kernels` do its arithmetic over slots; they and the predictor's network must
// outlive it.
std::unique_ptr<EvictionPolicy> MakeEvictionPolicy(
    const CacheOptions& options, const PolicyCapacity& capacity,
    const KernelTable& kernels, const PredictorView& predictor);

}  // namespace lkv
