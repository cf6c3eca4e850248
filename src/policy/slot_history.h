// SlotHistory: what is remembered of the attention that each cached token got,
// and the inputs of the history network made of it. Serving and training both
// come here, so a network is asked what it was taught.
//
// Two numbers a token. The moving average (ema_predictor.h). And the far peak:
// the most that a query kFarTokens or more behind the token paid; nearly every
// token has its own first queries' attention, so the peak over all of them says
// nothing. Peaks look at one query in kPeakQueries, those that the cache
// observes in prefill and traces keep token rows of.
//
// State: a half and a byte per slot. Thread rule: calls for different lanes may
// run at the same time. Allocates in the constructor only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernel_table.h"
#include "policy/ema_predictor.h"
#include "policy/eviction_policy.h"
#include "policy/lane_pages.h"

namespace lkv {

class SlotHistory {
 public:
  static constexpr size_t kBytesPerPage =
      EmaPredictor::kBytesPerPage + kPageTokens;
  static constexpr uint32_t kFarTokens = 64;
  static constexpr uint32_t kPeakQueries = 8;

  // `kernels` must outlive it.
  SlotHistory(const EmaPredictor::Options& options,
              const PolicyCapacity& capacity, const KernelTable& kernels)
      : average_(options, capacity, kernels), peak_(capacity, kPageTokens) {}

  // Slots [first_slot, first_slot + n) were written to the lane.
  void AddSlots(uint32_t lane, uint32_t first_slot, uint32_t n);
  void Observe(const LaneObservation& observation);
  // Whether peaks are taken from the query at this position.
  static bool IsPeakQuery(uint32_t query_pos) {
    return query_pos % kPeakQueries == kPeakQueries - 1;
  }
  // Attention expected at each of the next steps.
  void PredictNext(uint32_t lane, uint32_t first_slot,
                   std::span<float> out) const {
    average_.Predict(lane, first_slot, out);
  }
  // HistoryNetwork's inputs of n slots from first_slot on: log2 of average and
  // far peak, [HistoryNetwork::kInputs][n].
  void NetworkInputs(uint32_t lane, uint32_t first_slot, uint32_t n,
                     float* out) const;
  void MoveSlots(uint32_t lane, const SlotMoves& moves);
  void ExchangeState(StateStream& stream, const LanePages& pages) {
    average_.ExchangeState(stream, pages);
    ExchangeArrays(stream, pages, peak_);
  }
  // Page `index` of n_pages left the lane.
  void RemovePage(uint32_t lane, uint32_t index, uint32_t n_pages);

 private:
  EmaPredictor average_;
  LaneArray<uint8_t> peak_;  // [n_lanes, pages_per_lane, kPageTokens] f8
};

}  // namespace lkv
