#include "trace/replay_meter.h"

#include <algorithm>
#include <numeric>

#include "policy/heavy_hitters.h"
#include "policy/protection.h"

namespace lkv {
namespace {

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

ReplaySums& ReplaySums::operator+=(const ReplaySums& other) {
  contestable += other.contestable;
  contestable_hit += other.contestable_hit;
  all += other.all;
  all_hit += other.all_hit;
  topk_ratios += other.topk_ratios;
  n_topk_ratios += other.n_topk_ratios;
  n_needed += other.n_needed;
  n_needed_hit += other.n_needed_hit;
  return *this;
}

double ReplaySums::mass_hit() const {
  return Ratio(contestable_hit, contestable);
}
double ReplaySums::raw_hit() const { return Ratio(all_hit, all); }
double ReplaySums::topk_hit() const {
  return Ratio(topk_ratios, static_cast<double>(n_topk_ratios));
}
double ReplaySums::byte_hit() const {
  return Ratio(static_cast<double>(n_needed_hit),
               static_cast<double>(n_needed));
}

void ReplayMeter::Measure(uint32_t step,
                          const std::vector<uint8_t>& is_resident) {
  const bool by_page = options_.unit == EvictionUnit::kPage;
  const uint32_t unit_tokens = UnitTokens(options_.unit);
  const float* mass =
      by_page ? trace_.pages(step).mean : trace_.tokens(step).mean;
  const LaneRange range = ContestablePages(options_.ends, step + 1);
  const uint32_t begin = range.begin * kPageTokens;
  const uint32_t end = range.end * kPageTokens;
  for (uint32_t pos = 0; pos <= step; pos += unit_tokens, ++mass) {
    const double hit = is_resident[pos] != 0 ? *mass : 0;
    sums_.all += *mass;
    sums_.all_hit += hit;
    if (pos < begin || pos >= end) continue;
    sums_.contestable += *mass;
    sums_.contestable_hit += hit;
  }
  if (HasTokenRows(step)) MeasureNeeded(step, is_resident);
}

void ReplayMeter::MeasureNeeded(uint32_t step,
                                const std::vector<uint8_t>& is_resident) {
  const LaneRange range = ContestablePages(options_.ends, step + 1);
  const uint32_t begin = range.begin * kPageTokens;
  const uint32_t n_tokens = range.count() * kPageTokens;
  const auto n_resident = static_cast<uint32_t>(std::accumulate(
      is_resident.begin() + begin, is_resident.begin() + begin + n_tokens, 0));
  const float* mass = trace_.tokens(step).mean + begin;
  HeavyHitters needed = FindHeavyHitters({mass, n_tokens}, kUsedMassShare,
                                         std::max(1u, n_resident), scratch_);
  if (needed.count() == 0) return;
  const uint32_t n_needed = needed.count();
  uint32_t n_hit = 0;
  for (uint32_t i = 0; i < n_tokens; ++i) {
    bool is_needed = mass[i] > needed.threshold;
    if (mass[i] == needed.threshold && needed.n_at_threshold > 0) {
      --needed.n_at_threshold;
      is_needed = true;
    }
    if (is_needed) n_hit += is_resident[begin + i];
  }
  sums_.n_needed += n_needed;
  sums_.n_needed_hit += n_hit;
  sums_.topk_ratios += Ratio(n_hit, n_needed);
  ++sums_.n_topk_ratios;
}

}  // namespace lkv
