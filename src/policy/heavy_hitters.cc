#include "policy/heavy_hitters.h"

#include <bit>

namespace lkv {
namespace {

// Floats >= 0 are ordered like their bit patterns, so the threshold is found
// digit by digit, highest first: 11 + 11 + 10 bits.
constexpr uint32_t kDigitShifts[] = {21, 10, 0};
constexpr uint32_t kDigitBits[] = {11, 11, 10};
constexpr uint32_t kMaxBins = 2048;

struct Histogram {
  double mass[kMaxBins] = {};
  uint32_t count[kMaxBins] = {};
};

}  // namespace

HeavyHitters FindHeavyHitters(std::span<const float> mass, double share,
                              uint32_t max_count) {
  double total = 0;
  for (float m : mass) total += m;
  HeavyHitters found;
  if (total <= 0 || max_count == 0) return found;

  double mass_left = share * total;  // to be covered by the bins not yet taken
  uint32_t count_left = max_count;
  uint32_t prefix = 0;  // digits of the threshold found so far
  for (uint32_t digit = 0; digit < 3; ++digit) {
    const uint32_t shift = kDigitShifts[digit];
    const uint32_t bits = kDigitBits[digit];
    const uint32_t n_bins = uint32_t{1} << bits;
    Histogram histogram;
    for (float m : mass) {
      uint32_t key = std::bit_cast<uint32_t>(m) >> shift;
      if (key >> bits != prefix) continue;
      histogram.mass[key & (n_bins - 1)] += m;
      ++histogram.count[key & (n_bins - 1)];
    }
    // Whole bins are taken from the top while mass is missing and places are
    // left; the bin in which either ends holds the threshold.
    uint32_t bin = n_bins - 1;
    while (bin > 0 && histogram.mass[bin] < mass_left &&
           histogram.count[bin] < count_left) {
      mass_left -= histogram.mass[bin];
      count_left -= histogram.count[bin];
      found.n_above += histogram.count[bin];
      --bin;
    }
    prefix = prefix << bits | bin;
    if (digit == 2) {
      found.threshold = std::bit_cast<float>(prefix);
      while (found.n_at_threshold < histogram.count[bin] && mass_left > 0 &&
             count_left > 0) {
        ++found.n_at_threshold;
        mass_left -= found.threshold;
        --count_left;
      }
    }
  }
  return found;
}

}  // namespace lkv
