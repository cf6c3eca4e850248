#include "policy/heavy_hitters.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace lkv {
namespace {

// Floats >= 0 are ordered like their bit patterns, so the threshold is found
// digit by digit, highest first: 11 bits (exponent and 2 bits of mantissa),
// then three times 7. After each digit only masses that share it remain. Masses
// below (1 - share) of the mean are no candidates from the start: all of them
// together would not make up what may stay uncovered. So the first digit has at
// most 4 * log2(n / (1 - share)) + 5 different values.
constexpr uint32_t kFirstShift = 21;
constexpr uint32_t kFirstBins = 256;
constexpr uint32_t kLaterBits = 7;
constexpr uint32_t kLaterBins = uint32_t{1} << kLaterBits;
static_assert(kFirstShift % kLaterBits == 0);

struct Bin {
  double mass = 0;
  uint32_t count = 0;
};

// What remains to be found.
struct Search {
  double mass_left;  // to be covered by masses not taken yet
  uint32_t count_left;
  HeavyHitters found;
};

// Takes whole bins from the top while mass is missing and places are left;
// returns the bin in which either ends: it holds the threshold.
uint32_t TakeWholeBins(const Bin* bins, uint32_t n_bins, Search* search) {
  uint32_t bin = n_bins - 1;
  while (bin > 0 && bins[bin].mass < search->mass_left &&
         bins[bin].count < search->count_left) {
    search->mass_left -= bins[bin].mass;
    search->count_left -= bins[bin].count;
    search->found.n_above += bins[bin].count;
    --bin;
  }
  return bin;
}

// Sum of the masses, and the largest.
struct Extent {
  double total = 0;
  float largest = 0;
};

Extent Measure(std::span<const float> mass) {
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  float largest[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= mass.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      sums[j] += mass[i + j];
      largest[j] = std::max(largest[j], mass[i + j]);
    }
  }
  for (; i < mass.size(); ++i) {
    sums[0] += mass[i];
    largest[0] = std::max(largest[0], mass[i]);
  }
  Extent extent;
  for (size_t j = 0; j < kLanes; ++j) {
    extent.total += sums[j];
    extent.largest = std::max(extent.largest, largest[j]);
  }
  return extent;
}

uint32_t KeyOf(float mass, uint32_t shift) {
  return std::bit_cast<uint32_t>(mass) >> shift;
}

// Finds the next digit of the threshold among candidates whose keys, shifted
// right, lie in [base, base + n_bins), and keeps those that share it. Returns
// the key of the digit.
template <uint32_t kBins>
uint32_t FindDigit(uint32_t shift, uint32_t base, uint32_t n_bins,
                   std::span<float>* candidates, Search* search) {
  CHECK(n_bins <= kBins);
  Bin bins[kBins];
  for (float m : *candidates) {
    Bin& bin = bins[KeyOf(m, shift) - base];
    bin.mass += m;
    ++bin.count;
  }
  const uint32_t key = base + TakeWholeBins(bins, n_bins, search);
  size_t n_kept = 0;
  for (float m : *candidates) {
    (*candidates)[n_kept] = m;
    n_kept += KeyOf(m, shift) == key ? 1 : 0;
  }
  *candidates = candidates->first(n_kept);
  return key;
}

}  // namespace

HeavyHitters FindHeavyHitters(std::span<const float> mass, double share,
                              uint32_t max_count, std::span<float> scratch) {
  CHECK(scratch.size() >= mass.size());
  const Extent extent = Measure(mass);
  // Nor has attention that is NaN.
  if (!(extent.total > 0) || max_count == 0) return {};
  const auto lowest = static_cast<float>((1 - share) * extent.total /
                                         static_cast<double>(mass.size()));
  size_t n_candidates = 0;
  for (float m : mass) {
    scratch[n_candidates] = m;
    n_candidates += m >= lowest ? 1 : 0;
  }
  std::span<float> candidates = scratch.first(n_candidates);

  Search search = {
      .mass_left = share * extent.total, .count_left = max_count, .found = {}};
  const uint32_t base = KeyOf(lowest, kFirstShift);
  const uint32_t n_bins = KeyOf(extent.largest, kFirstShift) - base + 1;
  uint32_t key =
      FindDigit<kFirstBins>(kFirstShift, base, n_bins, &candidates, &search);
  for (uint32_t shift = kFirstShift; shift > 0;) {
    shift -= kLaterBits;
    key = FindDigit<kLaterBins>(shift, key << kLaterBits, kLaterBins,
                                &candidates, &search);
  }
  HeavyHitters found = search.found;
  found.threshold = std::bit_cast<float>(key);
  while (found.n_at_threshold < candidates.size() && search.mass_left > 0 &&
         search.count_left > 0) {
    ++found.n_at_threshold;
    search.mass_left -= found.threshold;
    --search.count_left;
  }
  return found;
}

}  // namespace lkv
