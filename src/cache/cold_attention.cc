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
  const size_t page_stride = PagesOf(n_slots);
  const size_t run_stride = CeilDiv(page_stride, kRunPages);
  const size_t n_pairs = size_t{n_parts} * shape_.n_kv_heads;
  const size_t n_heads = n_pairs * shape_.group;
  logits_ = AlignedBuffer<float>(n_heads * page_stride * kPageTokens);
  mass_ = AlignedBuffer<float>(n_pairs * page_stride);
  page_sums_ = AlignedBuffer<float>(n_pairs * page_stride);
  n_in_bin_.resize(n_pairs * kBins);
  n_standing_.resize(n_pairs);
  n_above_.resize(n_pairs);
  chosen_.resize(n_pairs * page_stride);
  n_chosen_.resize(n_pairs);
  n_lanes_done_ = std::vector<std::atomic<uint32_t>>(n_parts);
  n_runs_done_ = std::vector<std::atomic<uint32_t>>(n_pairs);
  run_m_ = AlignedBuffer<float>(n_heads * run_stride);
  run_l_ = AlignedBuffer<float>(n_heads * run_stride);
  run_o_ = AlignedBuffer<float>(n_heads * run_stride * shape_.head_dim);
  slot_capacity_ = n_slots;
  part_capacity_ = n_parts;
  slot_stride_ = page_stride * kPageTokens;
  page_stride_ = page_stride;
  run_stride_ = run_stride;
}

uint64_t ColdAttention::n_bytes() const {
  size_t n_floats = 0;
  for (const AlignedBuffer<float>* buffer :
       {&logits_, &mass_, &page_sums_, &run_m_, &run_l_, &run_o_}) {
    n_floats += buffer->size();
  }
  return n_floats * sizeof(float) + chosen_.size() * sizeof(ColdPage) +
         (n_in_bin_.size() + n_standing_.size() + n_above_.size() +
          n_chosen_.size()) *
             sizeof(uint32_t);
}

uint32_t ColdAttention::ScanRuns(const StepPart& part, uint32_t lane) {
  if (!Concerns(part)) return 0;
  return CeilDiv(part.sequence->cold()->n_groups(lane), kScanGroups);
}

uint32_t ColdAttention::MostReadRuns(std::span<const StepPart> parts) {
  uint32_t most_pages = 0;
  for (const StepPart& part : parts) {
    if (!Concerns(part)) continue;
    most_pages = std::max(most_pages, PagesOf(part.first_pos + 1));
  }
  return CeilDiv(most_pages, kRunPages);
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
  return all.subspan(first,
                     std::min(size_t{kScanGroups}, all.size() - first));
}

void ColdAttention::Scan(const Call& call, size_t pair, uint32_t run,
                         uint32_t member) {
  const uint32_t first = run * kScanGroups;
  const auto digests = Digests(call, pair, run);
  auto ahead = Digests(call, pair, run + 1);
  if (ahead.empty()) ahead = Digests(call, pair + 1, 0);
  kernels_.scan_cold(
      {.digests = digests.data(),
       .n_groups = static_cast<uint32_t>(digests.size()),
       .ahead = ahead.data(),
       .n_ahead = static_cast<uint32_t>(ahead.size()),
       .head_dim = shape_.head_dim,
       .group = shape_.group,
       .q = ScaledQuery(call, pair, member),
       .logits = &logits_[pair * shape_.group * slot_stride_ +
                          first * kColdGroupSlots],
       .logit_stride = slot_stride_});
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
  const uint32_t bin = std::bit_cast<uint32_t>(mass) >> kMassBits;
  return std::clamp(bin, kSmallestBin, kSmallestBin + kBins - 1) - kSmallestBin;
}

void ColdAttention::EstimateMasses(const Call& call, size_t pair) {
  const CachedSequence& sequence = *PartOf(call, pair).sequence;
  const uint32_t lane = LaneOf(call, pair);
  const uint32_t n_pages = sequence.cold()->n_groups(lane) * kColdGroupPages;
  const std::span<float> mass(&mass_[pair * page_stride_], n_pages);
  std::fill(mass.begin(), mass.end(), 0.0f);
  constexpr float kExact = -1;
  for (const uint32_t pos : sequence.pages().table(lane).first_positions()) {
    if (pos / kPageTokens < n_pages) mass[pos / kPageTokens] = kExact;
  }
  kernels_.page_masses({.logits = &logits_[pair * shape_.group * slot_stride_],
                        .logit_stride = slot_stride_,
                        .group = shape_.group,
                        .n_pages = n_pages,
                        .other_m = call.exact_m + pair * call.exact_stride,
                        .other_l = call.exact_l + pair * call.exact_stride,
                        .mass = mass.data(),
                        .page_sums = &page_sums_[pair * page_stride_]});
  uint32_t* const n_in_bin = &n_in_bin_[pair * kBins];
  std::fill_n(n_in_bin, kBins, 0);
  uint32_t n_standing = 0;
  for (const float m : mass) {
    if (m < 0) continue;
    ++n_in_bin[BinOf(m)];
    ++n_standing;
  }
  n_standing_[pair] = n_standing;
}

void ColdAttention::Share(const Call& call, size_t part) {
  const uint32_t n_lanes = shape_.n_kv_heads;
  const size_t first_pair = part * n_lanes;
  const uint32_t* const n_standing = &n_standing_[first_pair];
  CachedSequence& sequence = *call.parts[part].sequence;
  const uint32_t n_all =
      std::accumulate(n_standing, n_standing + n_lanes, uint32_t{0});
  const auto quota = static_cast<uint32_t>(
      std::ceil(sequence.attend_share() * static_cast<double>(n_all)));
  uint32_t* const n_taken = &n_chosen_[first_pair];
  uint32_t n_left = quota;
  for (uint32_t h = 0; h < n_lanes; ++h) {
    n_taken[h] = std::min(n_standing[h], quota / (kFloorParts * n_lanes));
    n_left -= n_taken[h];
  }
  // Down from the greatest mass: what a lane has that far beyond its own.
  uint32_t* const n_above = &n_above_[first_pair];
  std::fill_n(n_above, n_lanes, 0);
  for (uint32_t bin = kBins; bin-- > 0 && n_left > 0;) {
    for (uint32_t h = 0; h < n_lanes; ++h) {
      n_above[h] += n_in_bin_[(first_pair + h) * kBins + bin];
      const uint32_t n_more =
          std::min(n_left, n_above[h] - std::min(n_above[h], n_taken[h]));
      n_taken[h] += n_more;
      n_left -= n_more;
    }
  }
  uint64_t n_read = 0;
  for (uint32_t h = 0; h < n_lanes; ++h) {
    Pick(call, first_pair + h, n_taken[h]);
    const uint32_t lane = shape_.LaneOf(call.layer, h);
    n_read += n_taken[h] * ColdPages::BodyBytes(shape_.head_dim) +
              sequence.cold()->n_groups(lane) *
                  ColdPages::DigestBytes(shape_.head_dim);
  }
  sequence.CountColdRead(n_read);
}

void ColdAttention::Pick(const Call& call, size_t pair, uint32_t n_pages) {
  const ColdPages& cold = *PartOf(call, pair).sequence->cold();
  const uint32_t lane = LaneOf(call, pair);
  const uint32_t* const n_in_bin = &n_in_bin_[pair * kBins];
  uint32_t last_bin = kBins;
  uint32_t n_in_last = 0;  // to be taken of the last bin
  for (uint32_t n = 0; n < n_pages; n += n_in_last) {
    n_in_last = std::min(n_in_bin[--last_bin], n_pages - n);
  }
  ColdPage* to = &chosen_[pair * page_stride_];
  const float* const mass = &mass_[pair * page_stride_];
  for (uint32_t page = 0; page < cold.n_groups(lane) * kColdGroupPages;
       ++page) {
    if (mass[page] < 0) continue;
    const uint32_t bin = BinOf(mass[page]);
    if (bin < last_bin || (bin == last_bin && n_in_last == 0)) continue;
    if (bin == last_bin) --n_in_last;
    *to++ = cold.PageAt(lane, page);
  }
}

bool ColdAttention::Read(const Call& call, size_t pair, uint32_t run,
                         uint32_t member) {
  // Who has nothing to read is done with its first run.
  const uint32_t n_runs = std::max(1u, CeilDiv(n_chosen_[pair], kRunPages));
  if (run >= n_runs) return false;
  const uint32_t first = run * kRunPages;
  const size_t state = (pair * run_stride_ + run) * shape_.group;
  if (n_chosen_[pair] > 0) {
    const uint32_t n_pages = std::min(kRunPages, n_chosen_[pair] - first);
    kernels_.attend_cold(
        {.pages = &chosen_[pair * page_stride_ + first],
         .n_pages = n_pages,
         .n_ahead = n_chosen_[pair] - first - n_pages,
         .head_dim = shape_.head_dim,
         .group = shape_.group,
         .q = ScaledQuery(call, pair, member),
         .m = &run_m_[state],
         .l = &run_l_[state],
         .o = &run_o_[state * shape_.head_dim],
         .p = nullptr,
         .p_stride = 0,
         .p_max = nullptr,
         .p_max_stride = 0});
  }
  // acq_rel: who comes last sees the states of all runs.
  std::atomic<uint32_t>& n_done = n_runs_done_[pair];
  if (n_done.fetch_add(1, std::memory_order_acq_rel) + 1 < n_runs) return false;
  n_done.store(0, std::memory_order_relaxed);
  return true;
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
