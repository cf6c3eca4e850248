// LaneSpread: how many pages each lane of a sequence may hold.
//
// Lanes differ: some attend to a handful of tokens, others to the whole text.
// Under kMass a lane's share of the pages follows its contestable attention
// mass above a floor of 20 % of the mean (the safeguard of AdaKV, arXiv
// 2407.11550). Targets move by at most one page per lane and 64 tokens, so that
// no lane has to drop many pages at once. Under kEqual all targets differ by at
// most one page. Under kScore they are what SpreadBy made them, which whoever
// evicts from all lanes at once calls (a prompt is cut down, room is short),
// and hold still between.
//
// Dense lanes (those of the first dense_layers) hold everything and take no
// part: the totals below are what is left for the others.
//
// Thread rule: Observe for different lanes may run at the same time; Respread
// is one caller's, between them. Deterministic. Allocates in the constructor
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/state_stream.h"
#include "lookaheadkv/options.h"

namespace lkv {

// Shares `total` among weights.size() parties: `floor` for each, the rest in
// proportion to the weights (equally when all are 0), nobody above `cap`; what
// a capped party cannot take goes to the others. Integer parts by largest
// remainder, ties to the lower index. The sum is min(total, n * cap).
// Requires floor <= cap, n * floor <= total, weights >= 0 and finite, and all
// spans of one size n; exact and order are scratch. O(n log n), and O(n) for
// every round in which the cap binds another party (at most n).
void Apportion(std::span<const float> weights, uint32_t total, uint32_t floor,
               uint32_t cap, std::span<double> exact, std::span<uint32_t> order,
               std::span<uint32_t> out);

// What `lane_spread` comes to.
inline LaneSpreadMode SpreadModeOf(const CacheOptions& options) {
  if (options.lane_spread != LaneSpreadMode::kAuto) return options.lane_spread;
  switch (options.policy) {
    case PolicyName::kLookahead:
    case PolicyName::kEma:
    case PolicyName::kRepeat:
      return LaneSpreadMode::kScore;
    default:
      return LaneSpreadMode::kEqual;
  }
}

class LaneSpread {
 public:
  struct Options {
    LaneSpreadMode mode = LaneSpreadMode::kMass;
    uint32_t n_lanes = 0;        // all lanes of the sequence
    uint32_t n_dense_lanes = 0;  // the first ones, which take no part
    // What no lane goes below: its protected, open and spare pages.
    uint32_t floor_pages = 0;
    // What no lane can hold more of: the size of its page table. Requires
    // floor_pages <= pages_per_lane.
    uint32_t pages_per_lane = 0;
  };
  static constexpr uint32_t kRespreadTokens = 64;
  static constexpr double kFloorShare = 0.2;  // of the mean
  // Half-life of the mass averages: lanes keep their character, and targets
  // that follow noise would evict for nothing.
  static constexpr float kHalfLifeTokens = 256;

  // Targets are 0 until the first Respread. Requires
  // n_dense_lanes <= n_lanes.
  explicit LaneSpread(const Options& options);

  // Contestable mass that one query paid in `lane` (protection.h), tokens_since
  // tokens after the lane's last call. Observing a lane at its turn only, every
  // 16 tokens, is enough. O(1).
  void Observe(uint32_t lane, float contestable_mass, uint32_t tokens_since);

  // Ends a step after which the sequence has n_tokens tokens, with total_pages
  // for all participating lanes together. No target exceeds pages_per_lane or
  // what the text can fill (ceil(n_tokens / 16) + 1 pages, or floor_pages if
  // that is more); while all of that fits, every lane may hold it. A changed
  // total scales the targets at once; all other movement is one page per lane
  // for every 64 tokens since the last. Requires total_pages >= participating
  // lanes * floor_pages. O(lanes log lanes) when something changes, else O(1).
  void Respread(uint32_t n_tokens, uint32_t total_pages);

  // kScore: shares total_pages among the participating lanes so that lane i
  // gets wanted[i] pages as far as limits and the total allow; at once.
  // Requires what Respread does.
  void SpreadBy(std::span<const float> wanted_pages, uint32_t n_tokens,
                uint32_t total_pages);

  // Pages that `lane` may hold. Sums to at most total_pages over the
  // participating lanes; for a dense lane 0 (it is not asked).
  uint32_t target_pages(uint32_t lane) const { return target_[lane]; }

  void ExchangeState(StateStream& stream);

 private:
  // The participating lanes' part of an array over all lanes.
  template <typename T>
  std::span<T> Participants(std::vector<T>& values) const {
    return std::span<T>(values).subspan(options_.n_dense_lanes);
  }
  struct Limits {
    uint32_t floor_pages;
    uint32_t cap_pages;
  };
  Limits LimitsFor(uint32_t n_tokens, uint32_t total_pages) const;
  void Scale(uint32_t total_pages, uint32_t floor_pages, uint32_t cap_pages);
  void StepTowardsIdeal(uint32_t total_pages, uint32_t max_step);

  Options options_;
  std::vector<float> mass_;       // [n_lanes] moving average
  std::vector<uint8_t> seen_;     // [n_lanes] 1 once observed
  std::vector<uint32_t> target_;  // [n_lanes]
  // Scratch, [n_lanes] each.
  std::vector<uint32_t> ideal_;
  std::vector<float> weights_;
  std::vector<double> exact_;
  std::vector<uint32_t> order_;

  uint32_t total_pages_ = 0;
  uint32_t floor_pages_ = 0;
  uint32_t cap_pages_ = 0;
  bool text_fits_ = true;  // at the last call, every lane could hold all of it
  uint32_t last_respread_tokens_ = 0;
};

}  // namespace lkv
