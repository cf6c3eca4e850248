#include "cache/cold_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace lkv {

ColdAttention::ColdAttention(const KvShape& shape, const KernelTable& kernels,
                             uint32_t max_threads)
    : shape_(shape), kernels_(kernels) {
  for (uint32_t i = 0; i < max_threads; ++i) {
    q_.emplace_back(size_t{shape.group} * shape.head_dim);
  }
}

void ColdAttention::Reserve(uint32_t n_slots, uint32_t n_parts) {
  if (n_slots <= slot_capacity_ && n_parts <= part_capacity_) return;
  n_slots = std::max(slot_capacity_, n_slots);
  if (n_parts > part_capacity_) n_parts = std::bit_ceil(n_parts);
  n_parts = std::max(part_capacity_, n_parts);
  const auto padded = [](size_t n) {
    return CeilDiv(n, kMassPadding) * kMassPadding;
  };
  const size_t page_stride = padded(PagesOf(n_slots));
  const size_t n_groups = page_stride / kColdGroupPages;
  const size_t scan_run_stride = padded(CeilDiv(n_groups, kScanGroups));
  const size_t run_stride = CeilDiv(page_stride, kRunPages);
  const size_t n_pairs = size_t{n_parts} * shape_.n_kv_heads;
  const size_t n_heads = n_pairs * shape_.group;
  logits_ = AlignedBuffer<float>(n_heads * page_stride * kPageTokens);
  folded_q_ = AlignedBuffer<int8_t>(n_heads * n_groups * shape_.head_dim);
  folded_units_ = AlignedBuffer<float>(n_heads * n_groups);
  folded_offsets_ = AlignedBuffer<float>(n_heads * n_groups);
  scan_m_ = AlignedBuffer<float>(n_heads * scan_run_stride);
  page_sums_ = AlignedBuffer<float>(n_heads * page_stride);
  mass_ = AlignedBuffer<float>(n_pairs * page_stride);
  bins_.resize(n_pairs * page_stride);
  n_in_bin_.resize(n_pairs * kBins);
  n_above_.resize(n_pairs);
  n_chosen_.resize(n_pairs);
  // Pick writes one more than it keeps.
  chosen_.resize(n_pairs * page_stride + 1);
  n_rest_.resize(n_pairs);
  rest_.resize(n_pairs * page_stride);
  gaps_.resize(n_pairs);
  n_lanes_done_ = std::vector<std::atomic<uint32_t>>(n_parts);
  n_runs_done_ = std::vector<std::atomic<uint32_t>>(n_pairs);
  run_m_ = AlignedBuffer<float>(n_heads * run_stride);
  run_l_ = AlignedBuffer<float>(n_heads * run_stride);
  run_o_ = AlignedBuffer<float>(n_heads * run_stride * shape_.head_dim);
  slot_capacity_ = n_slots;
  part_capacity_ = n_parts;
  page_stride_ = page_stride;
  scan_run_stride_ = scan_run_stride;
  run_stride_ = run_stride;
}

uint64_t ColdAttention::n_bytes() const {
  size_t n_floats = 0;
  for (const AlignedBuffer<float>* buffer :
       {&logits_, &folded_units_, &folded_offsets_, &scan_m_, &page_sums_,
        &mass_, &run_m_, &run_l_, &run_o_}) {
    n_floats += buffer->size();
  }
  return n_floats * sizeof(float) + folded_q_.size() +
         bins_.size() * sizeof(uint16_t) +
         (chosen_.size() + rest_.size()) * sizeof(ChosenColdPage) +
         gaps_.size() * sizeof(double) +
         (n_in_bin_.size() + n_above_.size() + n_chosen_.size() +
          n_rest_.size()) *
             sizeof(uint32_t);
}

uint32_t ColdAttention::ScanRuns(const StepPart& part, uint32_t lane) {
  if (!Concerns(part)) return 0;
  return CeilDiv(part.sequence->cold()->n_groups(lane), kScanGroups);
}

uint32_t ColdAttention::PagesIn(const StepPart& part, uint32_t layer) const {
  uint32_t n_groups = 0;
  for (uint32_t h = 0; h < shape_.n_kv_heads; ++h) {
    n_groups += part.sequence->cold()->n_groups(shape_.LaneOf(layer, h));
  }
  return n_groups * kColdGroupPages;
}

uint32_t ColdAttention::MostReadRuns(const StepPart& part,
                                     uint32_t layer) const {
  if (!Concerns(part)) return 0;
  // The last run of a lane is short or, of a lane that reads nothing, empty.
  return Quota(part, PagesIn(part, layer)) / kRunPages + shape_.n_kv_heads;
}

uint32_t ColdAttention::Quota(const StepPart& part, uint32_t n_pages) {
  return static_cast<uint32_t>(
      std::ceil(part.sequence->attend_share() * static_cast<double>(n_pages)));
}

const float* ColdAttention::ScaledQuery(const Call& call, size_t pair,
                                        uint32_t member) {
  const StepPart& part = PartOf(call, pair);
  const size_t head = pair % shape_.n_kv_heads * shape_.group;
  ScaleQueries(
      call.q.data + part.first_row * call.q.stride + head * shape_.head_dim, 0,
      1, shape_.group, shape_.head_dim, q_[member].data());
  return q_[member].data();
}

std::span<const uint8_t* const> ColdAttention::Digests(const Call& call,
                                                       size_t pair,
                                                       uint32_t run) const {
  if (pair >= call.parts.size() * shape_.n_kv_heads) return {};
  const StepPart& part = PartOf(call, pair);
  if (!Concerns(part)) return {};
  const auto all = part.sequence->cold()->digests(LaneOf(call, pair));
  const size_t first = size_t{run} * kScanGroups;
  if (first >= all.size()) return {};
  return all.subspan(first, std::min(size_t{kScanGroups}, all.size() - first));
}

void ColdAttention::Scan(const Call& call, size_t pair, uint32_t run,
                         uint32_t member) {
  const uint32_t first = run * kScanGroups;
  const auto digests = Digests(call, pair, run);
  auto ahead = Digests(call, pair, run + 1);
  if (ahead.empty()) ahead = Digests(call, pair + 1, 0);
  const ColdEstimates to = EstimatesOf(pair);
  const auto n_groups = static_cast<uint32_t>(digests.size());
  kernels_.scan_cold({.digests = digests.data(),
                      .first_group = first,
                      .n_groups = n_groups,
                      .ahead = ahead.data(),
                      .n_ahead = static_cast<uint32_t>(ahead.size()),
                      .q = ScaledQuery(call, pair, member),
                      .to = to});
  kernels_.page_sums(
      {.logits = to.logits + size_t{first} * kColdGroupSlots,
       .logit_stride = to.logit_stride,
       .group = shape_.group,
       .n_groups = n_groups,
       .m = &scan_m_[pair * shape_.group * scan_run_stride_ + run],
       .m_stride = scan_run_stride_,
       .sums = &page_sums_[pair * shape_.group * page_stride_ +
                           size_t{first} * kColdGroupPages],
       .sum_stride = page_stride_});
}

ColdEstimates ColdAttention::EstimatesOf(size_t pair) {
  const size_t first_row =
      pair * shape_.group * (page_stride_ / kColdGroupPages);
  return {.group = shape_.group,
          .head_dim = shape_.head_dim,
          .logits = &logits_[pair * shape_.group * page_stride_ * kPageTokens],
          .logit_stride = page_stride_ * kPageTokens,
          .q = &folded_q_[first_row * shape_.head_dim],
          .units = &folded_units_[first_row],
          .offsets = &folded_offsets_[first_row]};
}

void ColdAttention::Choose(const Call& call, size_t pair) {
  EstimateMasses(call, pair);
  const size_t part = pair / shape_.n_kv_heads;
  // acq_rel: who comes last sees the masses of all lanes.
  std::atomic<uint32_t>& n_done = n_lanes_done_[part];
  if (n_done.fetch_add(1, std::memory_order_acq_rel) + 1 < shape_.n_kv_heads) {
    return;
  }
  n_done.store(0, std::memory_order_relaxed);
  Share(call, part);
}

uint32_t ColdAttention::BinOf(float mass) {
  if (mass < 0) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(mass) >> kMassBits;
  return std::clamp(bits, kBelowBins + 1, kBelowBins + kBins - 1) - kBelowBins;
}

void ColdAttention::EstimateMasses(const Call& call, size_t pair) {
  const CachedSequence& sequence = *PartOf(call, pair).sequence;
  const uint32_t lane = LaneOf(call, pair);
  const uint32_t n_pages = sequence.cold()->n_groups(lane) * kColdGroupPages;
  float* const mass = &mass_[pair * page_stride_];
  constexpr float kExact = -1;
  std::fill_n(mass, n_pages, 0.0f);
  std::fill_n(mass + n_pages,
              CeilDiv(n_pages, kMassPadding) * kMassPadding - n_pages, kExact);
  for (const uint32_t pos : sequence.pages().table(lane).first_positions()) {
    if (pos / kPageTokens < n_pages) mass[pos / kPageTokens] = kExact;
  }
  kernels_.page_masses({.group = shape_.group,
                        .n_pages = n_pages,
                        .run_pages = kScanGroups * kColdGroupPages,
                        .m = &scan_m_[pair * shape_.group * scan_run_stride_],
                        .m_stride = scan_run_stride_,
                        .sums = &page_sums_[pair * shape_.group * page_stride_],
                        .sum_stride = page_stride_,
                        .other_m = call.exact_m + pair * call.exact_stride,
                        .other_l = call.exact_l + pair * call.exact_stride,
                        .mass = mass});
  uint32_t* const n_in_bin = &n_in_bin_[pair * kBins];
  std::fill_n(n_in_bin, kBins, 0);
  uint16_t* const bins = &bins_[pair * page_stride_];
  for (uint32_t page = 0; page < n_pages; ++page) {
    const uint32_t bin = BinOf(mass[page]);
    bins[page] = static_cast<uint16_t>(bin);
    ++n_in_bin[bin];
  }
}

void ColdAttention::Share(const Call& call, size_t part) {
  const uint32_t n_lanes = shape_.n_kv_heads;
  const size_t first_pair = part * n_lanes;
  CachedSequence& sequence = *call.parts[part].sequence;
  const auto n_standing = [&](uint32_t h) {
    const uint32_t n_groups =
        sequence.cold()->n_groups(shape_.LaneOf(call.layer, h));
    return n_groups * kColdGroupPages - n_in_bin_[(first_pair + h) * kBins];
  };
  uint32_t n_all = 0;
  for (uint32_t h = 0; h < n_lanes; ++h) n_all += n_standing(h);
  const uint32_t quota = Quota(call.parts[part], n_all);
  uint32_t* const n_taken = &n_chosen_[first_pair];
  uint32_t n_left = quota;
  for (uint32_t h = 0; h < n_lanes; ++h) {
    n_taken[h] = std::min(n_standing(h), quota / (kFloorParts * n_lanes));
    n_left -= n_taken[h];
  }
  // Down from the greatest mass: what a lane has that far beyond its own.
  uint32_t* const n_above = &n_above_[first_pair];
  std::fill_n(n_above, n_lanes, 0);
  for (uint32_t bin = kBins; --bin > 0 && n_left > 0;) {
    for (uint32_t h = 0; h < n_lanes; ++h) {
      n_above[h] += n_in_bin_[(first_pair + h) * kBins + bin];
      const uint32_t n_more =
          std::min(n_left, n_above[h] - std::min(n_above[h], n_taken[h]));
      n_taken[h] += n_more;
      n_left -= n_more;
    }
  }
  uint64_t n_read = 0;
  const bool samples = sequence.SamplesRecall(call.layer);
  for (uint32_t h = 0; h < n_lanes; ++h) {
    Pick(call, first_pair + h);
    if (samples) PickRest(call, first_pair + h);
    const uint32_t lane = shape_.LaneOf(call.layer, h);
    const uint32_t n_pages =
        n_taken[h] + (samples ? n_rest_[first_pair + h] : 0);
    n_read += n_pages * ColdPages::BodyBytes(shape_.head_dim) +
              sequence.cold()->n_groups(lane) *
                  ColdPages::DigestBytes(shape_.head_dim);
  }
  sequence.CountColdRead(n_read);
}

uint32_t ColdAttention::FirstPage(const std::vector<uint32_t>& n_pages,
                                  size_t pair) const {
  const size_t first_pair = pair - pair % shape_.n_kv_heads;
  return std::accumulate(&n_pages[first_pair], &n_pages[pair], uint32_t{0});
}

void ColdAttention::Pick(const Call& call, size_t pair) {
  const ColdPages& cold = *PartOf(call, pair).sequence->cold();
  const uint32_t lane = LaneOf(call, pair);
  const uint32_t* const n_in_bin = &n_in_bin_[pair * kBins];
  const uint32_t n_wanted = n_chosen_[pair];
  uint32_t last_bin = kBins;
  uint32_t n_in_last = 0;  // to be taken of the last bin
  for (uint32_t n = 0; n < n_wanted; n += n_in_last) {
    n_in_last = std::min(n_in_bin[--last_bin], n_wanted - n);
  }
  const size_t first_of_part =
      pair / shape_.n_kv_heads * shape_.n_kv_heads * page_stride_;
  ChosenColdPage* to = &chosen_[first_of_part + FirstPage(n_chosen_, pair)];
  const uint16_t* const bins = &bins_[pair * page_stride_];
  const uint32_t n_pages = cold.n_groups(lane) * kColdGroupPages;
  // Which pages are taken no processor can guess, so all are written.
  for (uint32_t page = 0; page < n_pages; ++page) {
    *to = {.body = cold.BodyAt(lane, page), .page = page};
    const uint32_t is_last = bins[page] == last_bin && n_in_last > 0;
    n_in_last -= is_last;
    to += is_last | static_cast<uint32_t>(bins[page] > last_bin);
  }
}

void ColdAttention::PickRest(const Call& call, size_t pair) {
  const ColdPages& cold = *PartOf(call, pair).sequence->cold();
  const uint32_t lane = LaneOf(call, pair);
  const size_t first_of_part =
      pair / shape_.n_kv_heads * shape_.n_kv_heads * page_stride_;
  const ChosenColdPage* chosen =
      &chosen_[first_of_part + FirstPage(n_chosen_, pair)];
  const ChosenColdPage* const end = chosen + n_chosen_[pair];
  ChosenColdPage* const first =
      &rest_[first_of_part + FirstPage(n_rest_, pair)];
  ChosenColdPage* to = first;
  const uint16_t* const bins = &bins_[pair * page_stride_];
  for (uint32_t page = 0; page < cold.n_groups(lane) * kColdGroupPages;
       ++page) {
    if (chosen != end && chosen->page == page) {
      ++chosen;
    } else if (bins[page] > 0) {
      *to++ = {.body = cold.BodyAt(lane, page), .page = page};
    }
  }
  n_rest_[pair] = static_cast<uint32_t>(to - first);
}

std::optional<ColdAttention::PairRun> ColdAttention::RunOf(
    const std::vector<uint32_t>& n_pages, size_t part, uint32_t item) const {
  const size_t end_pair = (part + 1) * shape_.n_kv_heads;
  for (size_t pair = part * shape_.n_kv_heads; pair < end_pair; ++pair) {
    const uint32_t n_runs = RunsOf(n_pages[pair]);
    if (item < n_runs) return PairRun{pair, item};
    item -= n_runs;
  }
  return std::nullopt;
}

void ColdAttention::AttendRun(const PairRun& at,
                              const std::vector<uint32_t>& n_pages,
                              const std::vector<ChosenColdPage>& pages) {
  const uint32_t n_all = n_pages[at.pair];
  if (n_all == 0) return;
  const size_t first_pair = at.pair - at.pair % shape_.n_kv_heads;
  const size_t last_pair = first_pair + shape_.n_kv_heads - 1;
  const uint32_t first = at.run * kRunPages;
  const uint32_t n = std::min(kRunPages, n_all - first);
  const uint32_t first_of_lane = FirstPage(n_pages, at.pair);
  const uint32_t n_of_part = FirstPage(n_pages, last_pair) + n_pages[last_pair];
  const size_t state = (at.pair * run_stride_ + at.run) * shape_.group;
  kernels_.attend_cold(
      {.pages = &pages[first_pair * page_stride_ + first_of_lane + first],
       .n_pages = n,
       .n_ahead = n_of_part - first_of_lane - first - n,
       .of = EstimatesOf(at.pair),
       .m = &run_m_[state],
       .l = &run_l_[state],
       .o = &run_o_[state * shape_.head_dim],
       .p = nullptr,
       .p_stride = 0,
       .p_max = nullptr,
       .p_max_stride = 0});
}

bool ColdAttention::FinishRun(size_t pair,
                              const std::vector<uint32_t>& n_pages) {
  // acq_rel: who comes last sees the states of all runs.
  std::atomic<uint32_t>& n_done = n_runs_done_[pair];
  if (n_done.fetch_add(1, std::memory_order_acq_rel) + 1 <
      RunsOf(n_pages[pair])) {
    return false;
  }
  n_done.store(0, std::memory_order_relaxed);
  return true;
}

std::optional<size_t> ColdAttention::Read(const Call& call, size_t part,
                                          uint32_t item) {
  if (!Concerns(call.parts[part])) return std::nullopt;
  const auto at = RunOf(n_chosen_, part, item);
  if (!at) return std::nullopt;
  AttendRun(*at, n_chosen_, chosen_);
  if (!FinishRun(at->pair, n_chosen_)) return std::nullopt;
  return at->pair;
}

uint32_t ColdAttention::MostRestRuns(const StepPart& part,
                                     uint32_t layer) const {
  if (!Concerns(part) || !part.sequence->SamplesRecall(layer)) return 0;
  return PagesIn(part, layer) / kRunPages + shape_.n_kv_heads;
}

void ColdAttention::ReadRest(const Call& call, size_t part, uint32_t item) {
  CachedSequence& sequence = *call.parts[part].sequence;
  if (MostRestRuns(call.parts[part], call.layer) == 0) return;
  const auto at = RunOf(n_rest_, part, item);
  if (!at) return;
  AttendRun(*at, n_rest_, rest_);
  if (!FinishRun(at->pair, n_rest_)) return;
  gaps_[at->pair] = GapOf(call, at->pair);
  std::atomic<uint32_t>& n_done = n_lanes_done_[part];
  if (n_done.fetch_add(1, std::memory_order_acq_rel) + 1 < shape_.n_kv_heads) {
    return;
  }
  n_done.store(0, std::memory_order_relaxed);
  double sum = 0;
  const size_t first_pair = part * shape_.n_kv_heads;
  for (uint32_t h = 0; h < shape_.n_kv_heads; ++h) sum += gaps_[first_pair + h];
  sequence.SetRecallGap(sum / shape_.n_kv_heads);
}

double ColdAttention::GapOf(const Call& call, size_t pair) const {
  const uint32_t n_runs = CeilDiv(n_rest_[pair], kRunPages);
  double sum = 0;
  for (uint32_t g = 0; g < shape_.group; ++g) {
    const double attended_m = call.exact_m[pair * call.exact_stride + g];
    const double attended_l = call.exact_l[pair * call.exact_stride + g];
    double rest = 0;
    for (uint32_t run = 0; run < n_runs; ++run) {
      const size_t state = (pair * run_stride_ + run) * shape_.group + g;
      rest += run_l_[state] * std::exp(run_m_[state] - attended_m);
    }
    sum += rest / (rest + attended_l);
  }
  return sum / shape_.group;
}

void ColdAttention::MergeInto(size_t pair, float* m, float* l, float* o) const {
  const uint32_t n_runs = CeilDiv(n_chosen_[pair], kRunPages);
  for (uint32_t run = 0; run < n_runs; ++run) {
    const size_t state = (pair * run_stride_ + run) * shape_.group;
    MergeAttentionStates(shape_.group, shape_.head_dim, &run_m_[state],
                         &run_l_[state], &run_o_[state * shape_.head_dim], m, l,
                         o);
  }
}

}  // namespace lkv
