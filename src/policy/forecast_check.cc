#include "policy/forecast_check.h"

namespace lkv {

void ForecastCheck::Decide() {
  const uint32_t n_before = total_.n;
  for (Ranks& lane : lanes_) {
    total_.n += lane.n;
    total_.network += lane.network;
    total_.average += lane.average;
    lane = {};
  }
  if (total_.n == n_before) return;
  const auto n = static_cast<float>(total_.n);
  verdict_.n_returns += total_.n - n_before;
  verdict_.network_rank = total_.network / n;
  verdict_.average_rank = total_.average / n;
  verdict_.uses_network =
      total_.n < kMinReturns ||
      verdict_.network_rank > verdict_.average_rank - kMargin;
  if (total_.n >= kMaxReturns) {
    total_ = {.n = total_.n / 2,
              .network = total_.network / 2,
              .average = total_.average / 2};
  }
}

}  // namespace lkv
