// PatternDetector: how much the attention pattern of a sequence has changed.
//
// Per lane, the attention mass of its contestable pages is averaged at two
// speeds (half-lives of 8 and 64 tokens). The divergence between the two
// distributions over pages is small while the text goes on as before and rises
// when attention moves elsewhere. The value of the sequence is the median over
// lanes of layers >= 2 (the first layers attend to form more than to content;
// models of fewer layers use all), smoothed by 0.7 old + 0.3 new.
//
// Sinks and recent tokens are left out: they hold most of the mass and never
// change, or always do. Every query counts alike, whatever share of its
// attention goes to contestable tokens, from 4 % on: a text that turns leaves
// them alone at first, and averages of the mass itself would forget the old
// topic only when 1 % of it is left, 50 tokens later. Divergences are
// Jensen-Shannon in nats (0 .. ln 2) or Kullback-Leibler (fast against slow;
// unbounded), on distributions smoothed by 1e-4 a page so that neither sees log
// 0.
//
// Thread rule: AddPage, RemovePage, Observe and Evaluate for different lanes
// may run at the same time; Update is one caller's, between them. Allocates in
// the constructor only. Cost: Observe 0.6 us for 2048 slots; Evaluate
// 0.8 us for 128 pages, meant for one lane in 16 per step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lookaheadkv/options.h"
#include "policy/eviction_policy.h"
#include "policy/lane_pages.h"
#include "policy/protection.h"

namespace lkv {

class PatternDetector {
 public:
  struct Options {
    ChangeMetric metric = ChangeMetric::kJensenShannon;
    double smoothing = 0.7;  // weight of the old value in [0, 1)
    ProtectedEnds ends = {};
    uint32_t n_kv_heads = 1;  // lanes are numbered layer-major
  };
  // Two f32 averages and nothing else; charged to the budget.
  static constexpr size_t kBytesPerPage = 2 * sizeof(float);
  // Lanes of layers before this one have no vote.
  static constexpr uint32_t kFirstLayer = 2;

  PatternDetector(const Options& options, const PolicyCapacity& capacity);

  // Pages come and go as in the lane's page table.
  void AddPage(uint32_t lane);
  void RemovePage(uint32_t lane, uint32_t index);

  // What one query paid: reads mass_mean, n_slots and tokens_since.
  void Observe(const LaneObservation& observation);
  // Recomputes the divergence of one lane; a lane without two contestable pages
  // has none.
  void Evaluate(uint32_t lane);
  // Ends a step: median over the lanes evaluated so far, then smoothing.
  // Returns the new change(). O(lanes).
  double Update();

  // Reading, it has the same pages already.
  void ExchangeState(StateStream& stream);

  // Smoothed change, nats; 0 before the first lane was evaluated.
  double change() const { return change_; }

 private:
  // Averages of one page. Negative `fast` = not observed as contestable yet.
  struct PageAverages {
    float fast;
    float slow;

    void ExchangeState(StateStream& stream) {
      stream.Exchange(fast);
      stream.Exchange(slow);
    }
  };

  Options options_;
  uint32_t first_lane_;
  std::vector<uint32_t> n_pages_;      // [n_lanes]
  LaneArray<PageAverages> averages_;   // [n_lanes, pages_per_lane]
  std::vector<float> divergence_;      // [n_lanes], negative = none
  std::vector<float> median_scratch_;  // [n_lanes]
  double change_ = 0;
  bool has_change_ = false;
};

}  // namespace lkv
