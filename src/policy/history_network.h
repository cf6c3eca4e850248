// HistoryNetwork: how much attention a cached token may get at most, from what
// it got so far.
//
// The moving average says what a token gets now. What it may get when the text
// comes back to it is another matter: a name or a number lies still for a
// thousand tokens and then has half of a head's attention. Trained on what
// every token got when its text was read a second time (KVzip's score, arXiv
// 2505.23416), the network forecasts that maximum from the history of one
// reading, with half the squared error in log2 of the average alone.
//
// One set of weights for the model and a bias for every hidden unit and lane:
// heads differ in how far they look back, not in how. 16 hidden units, 1,600
// numbers for 90 lanes. Immutable once made; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_table.h"

namespace lkv {

struct HistoryNetwork {
  static constexpr uint32_t kInputs = 2;  // of SlotHistory
  static constexpr uint32_t kHidden = 16;

  HistoryNetwork() = default;
  explicit HistoryNetwork(uint32_t n_lanes)
      : inner(kHidden * kInputs),
        hidden_bias(size_t{n_lanes} * kHidden),
        outer(kHidden),
        direct(kInputs),
        bias(n_lanes) {}

  uint32_t n_lanes() const { return static_cast<uint32_t>(bias.size()); }
  // out[i] = log2 (base/linear_log2.h) of the most attention that token i of
  // the lane may get. inputs: [kInputs][out.size()]. 1 ns a token.
  void Forecast(const KernelTable& kernels, uint32_t lane, const float* inputs,
                std::span<float> out) const {
    kernels.two_layer({.x = inputs,
                       .x_stride = out.size(),
                       .n_rows = out.size(),
                       .n_inputs = kInputs,
                       .n_hidden = kHidden,
                       .inner = inner.data(),
                       .hidden_bias = &hidden_bias[size_t{lane} * kHidden],
                       .outer = outer.data(),
                       .direct = direct.data(),
                       .bias = bias[lane],
                       .y = out.data()});
  }

  std::vector<float> inner;        // [kHidden, kInputs]
  std::vector<float> hidden_bias;  // [n_lanes, kHidden]
  std::vector<float> outer;        // [kHidden]
  std::vector<float> direct;       // [kInputs]
  std::vector<float> bias;         // [n_lanes]
};

// A network, or none, and which of its lanes the first lane of a cache is.
struct PredictorView {
  const HistoryNetwork* network = nullptr;
  uint32_t first_lane = 0;
};

}  // namespace lkv
