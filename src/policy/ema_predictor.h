// EmaPredictor: the attention that each resident token will get, from a moving
// average of what it got.
//
// The forecast is flat: the same attention for each of the next steps, so one
// number per slot stands for all of them. Half-life 8 * prediction_steps
// tokens: a longer horizon listens to a longer past. Ages count tokens, not
// calls, so that sampled queries (every 8th in prefill) weigh what they stand
// for, and a lane that is not observed keeps its values (what was not seen must
// not look unattended).
//
// A fresh token starts with the mean of the lane's youngest contestable page,
// the attention that tokens of this lane have left by the time they may leave.
// Zero would condemn it, its own first weights would acquit it: a query attends
// to itself and its neighbours up to 100 times more than to the same token 128
// positions later. At 4 prediction steps 1/16 of the start is left when the
// token becomes contestable, at 12 steps 2/5.
//
// A half moves in steps of 1/2048 to 1/1024 of its value, so under a constant
// mass the average stops short of it, by 2 % at 4 prediction steps and a
// quarter at 64. Real attention varies from query to query by far more than a
// step, which carries the average on: the error is then under 5 % (tested).
//
// State: one half per slot (attention * kMassScale). Thread rule: calls for
// different lanes may run at the same time. Allocates in the constructor only.
// Cost: Observe 0.15 us for 2048 slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernel_table.h"
#include "policy/eviction_policy.h"
#include "policy/lane_pages.h"
#include "policy/protection.h"

namespace lkv {

class EmaPredictor {
 public:
  struct Options {
    uint32_t prediction_steps = 4;
    ProtectedEnds ends = {};
  };
  static constexpr size_t kBytesPerPage = kPageTokens * sizeof(uint16_t);
  static constexpr uint32_t kHalfLifeTokensPerStep = 8;

  // `kernels` must outlive the predictor.
  EmaPredictor(const Options& options, const PolicyCapacity& capacity,
               const KernelTable& kernels);

  // Slots [first_slot, first_slot + n) were written to the lane.
  void AddSlots(uint32_t lane, uint32_t first_slot, uint32_t n);
  // attention: [n_slots] what a query paid, tokens_since tokens after the last.
  void Observe(uint32_t lane, const float* attention, uint32_t n_slots,
               uint32_t tokens_since);
  // Attention that each of the next steps is expected to pay to slots
  // [first_slot, first_slot + out.size()).
  void Predict(uint32_t lane, uint32_t first_slot, std::span<float> out) const;
  // LinearLog2 (base/linear_log2.h) of the same; below 2^-26, where halves have
  // no exponent left, it goes down to -27 in a straight line.
  void Log2(uint32_t lane, uint32_t first_slot, std::span<float> out) const;
  void MoveSlots(uint32_t lane, const SlotMoves& moves) {
    average_.MoveSlots(lane, moves);
  }
  void ExchangeState(StateStream& stream, const LanePages& pages) {
    ExchangeArrays(stream, pages, average_);
  }
  // Page `index` of n_pages left the lane.
  void RemovePage(uint32_t lane, uint32_t index, uint32_t n_pages);

 private:
  float half_life_tokens_;
  ProtectedEnds ends_;
  const KernelTable& kernels_;
  LaneArray<uint16_t> average_;  // [n_lanes, pages_per_lane, kPageTokens] f16
};

}  // namespace lkv
