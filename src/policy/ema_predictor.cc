#include "policy/ema_predictor.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "policy/non_negative_f16.h"

namespace lkv {

EmaPredictor::EmaPredictor(const Options& options,
                           const PolicyCapacity& capacity,
                           const KernelTable& kernels)
    : half_life_tokens_(static_cast<float>(kHalfLifeTokensPerStep) *
                        static_cast<float>(options.prediction_steps)),
      ends_(options.ends),
      kernels_(kernels),
      average_(capacity, kPageTokens) {
  CHECK(options.prediction_steps > 0);
}

void EmaPredictor::AddSlots(uint32_t lane, uint32_t first_slot, uint32_t n) {
  uint16_t* average = average_.of(lane);
  LaneRange settled = ContestablePages(ends_, first_slot);
  uint16_t start = 0;
  if (settled.count() > 0) {
    float page[kPageTokens];
    WidenNonNegativeF16(average + (settled.end - 1) * kPageTokens, kPageTokens,
                        page);
    start =
        F32ToF16(std::accumulate(page, page + kPageTokens, 0.0f) / kPageTokens);
  }
  std::fill_n(average + first_slot, n, start);
}

void EmaPredictor::Observe(uint32_t lane, const float* attention,
                           uint32_t n_slots, uint32_t tokens_since) {
  float keep = std::exp2(-static_cast<float>(tokens_since) / half_life_tokens_);
  kernels_.ema_f16(average_.of(lane), attention, n_slots, keep);
}

void EmaPredictor::Predict(uint32_t lane, uint32_t first_slot,
                           std::span<float> out) const {
  WidenNonNegativeF16(average_.of(lane) + first_slot, out.size(), out.data());
  for (float& attention : out) attention *= 1 / kMassScale;
}

void EmaPredictor::Log2(uint32_t lane, uint32_t first_slot,
                        std::span<float> out) const {
  // A half's exponent counts from 2^-15, kMassScale is 2^12.
  constexpr float kZero = -15 - 12;
  const uint16_t* half = average_.of(lane) + first_slot;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(half[i]) * 0x1p-10f + kZero;
  }
}

void EmaPredictor::RemovePage(uint32_t lane, uint32_t index, uint32_t n_pages) {
  average_.RemovePage(lane, index, n_pages);
}

}  // namespace lkv
