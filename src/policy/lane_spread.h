// LaneSpread: how many pages each lane of a sequence may hold.
//
// Lanes differ: some attend to a handful of tokens, others to the whole text.
// Under kMass a lane's share of the pages follows its contestable attention
// mass above a floor of 20 % of the mean (the safeguard of AdaKV, arXiv
// 2407.11550). Targets move by at most one page per lane and 64 tokens, so that
// no lane has to drop many pages at once. Under kEqual all targets differ by at
// most one page.
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

#include "lookaheadkv/options.h"

namespace lkv {

// Shares `total` among weights.size() parties: `floor` for each, the rest in
// proportion to the weights (equally when all are 0), nobody above `cap`; what
// a capped party cannot take goes to the others. Integer parts by largest
// remainder, ties to the lower index. The sum is min(total, n * cap).
// Requires floor <= cap, n * floor <= total, weights >= 0 and finite, and
// remainder.size() == out.size() == weights.size(). O(n * (log n + number of
// capped rounds)).
void Apportion(std::span<const float> weights, uint32_t total, uint32_t floor,
               uint32_t cap, std::span<double> remainder,
               std::span<uint32_t> out);

// kMass for the look-ahead policy and kEqual for the baselines unless given.
LaneSpreadMode LaneSpreadModeOf(const CacheOptions& options);

class LaneSpread {
 public:
  struct Options {
    LaneSpreadMode mode = LaneSpreadMode::kMass;
    uint32_t n_lanes = 0;        // all lanes of the sequence
    uint32_t n_dense_lanes = 0;  // the first ones, which take no part
    // What no lane goes below: its protected, open and spare pages.
    uint32_t floor_pages = 0;
  };
  static constexpr uint32_t kRespreadTokens = 64;
  static constexpr double kFloorShare = 0.2;  // of the mean
  // Half-life of the mass averages.
  static constexpr float kHalfLifeTokens = 64;

  // Targets are 0 until the first Respread. Requires
  // n_dense_lanes <= n_lanes.
  explicit LaneSpread(const Options& options);

  // Contestable mass that one query paid in `lane` (protection.h), tokens_since
  // tokens after the lane's last call. Observing a lane at its turn only, every
  // 16 tokens, is enough. O(1).
  void Observe(uint32_t lane, float contestable_mass, uint32_t tokens_since);

  // Ends a step after which the sequence has n_tokens tokens, with total_pages
  // for all participating lanes together. Cheap unless the total changed or 64
  // tokens passed; then O(lanes log lanes). No target exceeds what the text can
  // fill: ceil(n_tokens / 16) + 1 pages. A changed total scales the targets at
  // once. Requires total_pages >= participating lanes * floor_pages.
  void Respread(uint32_t n_tokens, uint32_t total_pages);

  // Pages that `lane` may hold. Sums to at most total_pages over the
  // participating lanes; for a dense lane 0 (it is not asked).
  uint32_t target_pages(uint32_t lane) const { return target_[lane]; }

 private:
  void StepTowardsIdeal(uint32_t max_pages_per_lane, uint32_t total_pages);

  Options options_;
  std::vector<float> mass_;        // [n_lanes] moving average
  std::vector<uint32_t> target_;   // [n_lanes]
  std::vector<uint32_t> ideal_;    // [n_lanes]
  std::vector<float> weights_;     // [n_lanes]
  std::vector<double> remainder_;  // [n_lanes]
  std::vector<uint32_t> order_;    // [n_lanes]
  uint32_t total_pages_ = 0;
  uint32_t last_respread_tokens_ = 0;
};

}  // namespace lkv
