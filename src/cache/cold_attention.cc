#include "cache/cold_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

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
  candidates_.resize(n_pairs * page_stride);
  chosen_.resize(n_pairs * page_stride);
  n_chosen_.resize(n_pairs);
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
  return n_floats * sizeof(float) + candidates_.size() * sizeof(Candidate) +
         chosen_.size() * sizeof(ColdPage) +
         n_chosen_.size() * sizeof(uint32_t);
}

void ColdAttention::Attend(TeamMember& me, const Call& call) {
  uint32_t most_tokens = 0;
  for (const StepPart& part : call.parts) {
    if (Concerns(part)) most_tokens = std::max(most_tokens, part.first_pos + 1);
  }
  if (most_tokens == 0) return;
  CHECK(most_tokens <= slot_capacity_ && call.parts.size() <= part_capacity_);
  const uint32_t member = me.index();
  const size_t n_pairs = call.parts.size() * shape_.n_kv_heads;
  const auto for_runs = [&](uint32_t n_runs, const auto& fn) {
    me.ForEach(n_pairs * n_runs, [&](size_t item) {
      const size_t pair = item / n_runs;
      if (Concerns(PartOf(call, pair))) {
        fn(pair, static_cast<uint32_t>(item % n_runs));
      }
    });
  };
  for_runs(CeilDiv(most_tokens, kScanGroups * kColdGroupSlots),
           [&](size_t pair, uint32_t run) { Scan(call, pair, run, member); });
  for_runs(1, [&](size_t pair, uint32_t) { EstimateMasses(call, pair); });
  me.ForEach(call.parts.size(), [&](size_t part) {
    if (Concerns(call.parts[part])) Choose(call, part);
  });
  for_runs(CeilDiv(PagesOf(most_tokens), kRunPages),
           [&](size_t pair, uint32_t run) { Read(call, pair, run, member); });
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

void ColdAttention::Scan(const Call& call, size_t pair, uint32_t run,
                         uint32_t member) {
  const ColdPages& cold = *PartOf(call, pair).sequence->cold();
  const auto digests = cold.digests(LaneOf(call, pair));
  const uint32_t first = run * kScanGroups;
  if (first >= digests.size()) return;
  kernels_.scan_cold(
      {.digests = &digests[first],
       .n_groups =
           std::min(kScanGroups, static_cast<uint32_t>(digests.size()) - first),
       .head_dim = shape_.head_dim,
       .group = shape_.group,
       .q = ScaledQuery(call, pair, member),
       .logits = &logits_[pair * shape_.group * slot_stride_ +
                          first * kColdGroupSlots],
       .logit_stride = slot_stride_});
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
}

void ColdAttention::Choose(const Call& call, size_t part_index) {
  const StepPart& part = call.parts[part_index];
  CachedSequence& sequence = *part.sequence;
  const ColdPages& cold = *sequence.cold();
  const uint32_t n_heads = shape_.n_kv_heads;
  const size_t first_pair = part_index * n_heads;
  Candidate* const candidates = &candidates_[first_pair * page_stride_];
  uint32_t n_standing = 0;
  for (uint32_t h = 0; h < n_heads; ++h) {
    const uint32_t n_pages =
        cold.n_groups(shape_.LaneOf(call.layer, h)) * kColdGroupPages;
    const float* mass = &mass_[(first_pair + h) * page_stride_];
    n_standing += static_cast<uint32_t>(
        std::count_if(mass, mass + n_pages, [](float m) { return m >= 0; }));
  }
  const auto quota = static_cast<uint32_t>(
      std::ceil(sequence.attend_share() * static_cast<double>(n_standing)));
  const uint32_t floor = quota / (5 * n_heads);
  const auto better = [](const Candidate& a, const Candidate& b) {
    if (a.mass != b.mass) return a.mass > b.mass;
    return a.kv_head != b.kv_head ? a.kv_head < b.kv_head : a.page < b.page;
  };
  // First what is each lane's own; the others move to the front.
  uint32_t n_others = 0;
  uint32_t n_left = quota;
  for (uint32_t h = 0; h < n_heads; ++h) {
    const uint32_t lane = shape_.LaneOf(call.layer, h);
    const uint32_t n_pages = cold.n_groups(lane) * kColdGroupPages;
    float* mass = &mass_[(first_pair + h) * page_stride_];
    Candidate* const mine = candidates + n_others;
    uint32_t n = 0;
    for (uint32_t page = 0; page < n_pages; ++page) {
      if (mass[page] >= 0) mine[n++] = {mass[page], h, page};
    }
    const uint32_t n_own = std::min(n, floor);
    std::nth_element(
        mine, mine + (n - n_own), mine + n,
        [&](const auto& a, const auto& b) { return better(b, a); });
    n_others += n - n_own;
    n_left -= n_own;
    for (uint32_t page = 0; page < n_pages; ++page) mass[page] = 0;
    for (uint32_t i = n - n_own; i < n; ++i) mass[mine[i].page] = 1;
  }
  const uint32_t n_taken = std::min(n_left, n_others);
  std::nth_element(candidates, candidates + n_taken, candidates + n_others,
                   better);
  for (uint32_t i = 0; i < n_taken; ++i) {
    const Candidate& one = candidates[i];
    mass_[(first_pair + one.kv_head) * page_stride_ + one.page] = 1;
  }
  uint64_t n_read = 0;
  for (uint32_t h = 0; h < n_heads; ++h) {
    const size_t pair = first_pair + h;
    const uint32_t lane = shape_.LaneOf(call.layer, h);
    const uint32_t n_pages = cold.n_groups(lane) * kColdGroupPages;
    uint32_t n = 0;
    for (uint32_t page = 0; page < n_pages; ++page) {
      if (mass_[pair * page_stride_ + page] > 0) {
        chosen_[pair * page_stride_ + n++] = cold.PageAt(lane, page);
      }
    }
    n_chosen_[pair] = n;
    n_read += n * ColdPages::BodyBytes(shape_.head_dim) +
              cold.n_groups(lane) * ColdPages::DigestBytes(shape_.head_dim);
  }
  sequence.CountColdRead(n_read);
}

void ColdAttention::Read(const Call& call, size_t pair, uint32_t run,
                         uint32_t member) {
  const uint32_t first = run * kRunPages;
  if (first >= n_chosen_[pair]) return;
  const size_t state = (pair * run_stride_ + run) * shape_.group;
  kernels_.attend_cold({.pages = &chosen_[pair * page_stride_ + first],
                        .n_pages = std::min(kRunPages, n_chosen_[pair] - first),
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
