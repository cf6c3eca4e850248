#include "cache/attention_runner.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "cache/observed_queries.h"

namespace lkv {
namespace {

// The new tokens of a part by position. Token 0 stands at first_pos.
struct NewTokens {
  uint32_t first_pos;
  uint32_t end_pos;
  bool all_observed;

  NewTokens(const StepPart& part, const AttentionObserver* observer)
      : first_pos(part.first_pos),
        end_pos(first_pos + part.n_tokens),
        all_observed(observer != nullptr && observer->WatchesAll()) {}

  bool IsObserved(uint32_t token) const {
    return all_observed || lkv::IsObserved(first_pos + token, end_pos);
  }
  // Tokens since the observed one before `token`; the last token of the step
  // before was observed.
  uint32_t TokensSince(uint32_t token) const {
    uint32_t since = 1;
    while (since <= token && !IsObserved(token - since)) ++since;
    return since;
  }
  uint32_t CountObserved(QueryRange range) const {
    uint32_t n = 0;
    for (uint32_t t = range.begin; t < range.end; ++t) n += IsObserved(t);
    return n;
  }
  // From `begin` until max_rows observed tokens are in.
  QueryRange NextWave(uint32_t begin, uint32_t max_rows) const {
    uint32_t end = begin;
    for (uint32_t rows = 0; first_pos + end < end_pos && rows < max_rows;
         ++end) {
      rows += IsObserved(end);
    }
    return {begin, end};
  }
};

// Of masses by position, those of the lane's exact pages, moved to the front.
void KeepExactOnly(const PageTable& table, float* mass) {
  for (uint32_t i = 0; i < table.n_pages(); ++i) {
    const float* from = mass + table.first_positions()[i];
    std::copy(from, from + kPageTokens, mass + size_t{i} * kPageTokens);
  }
}

}  // namespace

AttentionRunner::AttentionRunner(const KvShape& shape,
                                 const KernelTable& kernels,
                                 uint32_t max_threads, PrefillProducts prefill)
    : shape_(shape),
      kernels_(kernels),
      prefill_(prefill),
      block_queries_(std::max(1u, kPrefillRows / shape.group)),
      block_rows_(block_queries_ * shape.group),
      observed_rows_(std::min(block_queries_, kWaveRows) * shape.group),
      members_(max_threads),
      read_runs_(shape.n_layers),
      rest_runs_(shape.n_layers),
      cold_(shape, kernels, max_threads) {
  static_assert(kRunSlots % kAttendChunkSlots == 0);
  for (Member& member : members_) {
    member.q = AlignedBuffer<float>(size_t{block_rows_} * shape.head_dim);
    member.scratch = AlignedBuffer<float>(AttendPrefillScratch(shape.head_dim));
    member.m = AlignedBuffer<float>(block_rows_);
    member.l = AlignedBuffer<float>(block_rows_);
  }
}

void AttentionRunner::Reserve(uint32_t n_slots, uint32_t n_parts) {
  if (n_slots <= slot_capacity_ && n_parts <= part_capacity_) return;
  n_slots = std::max(slot_capacity_, n_slots);
  // Twice as much at least, or admitting sequences one by one would move it all
  // each time.
  if (n_parts > part_capacity_) n_parts = std::bit_ceil(n_parts);
  n_parts = std::max(part_capacity_, n_parts);
  const size_t slot_stride = size_t{PagesOf(n_slots)} * kPageTokens;
  const size_t chunk_stride = CeilDiv(n_slots, kAttendChunkSlots);
  const size_t run_stride = CeilDiv(n_slots, kRunSlots);

  const size_t n_pairs = size_t{n_parts} * shape_.n_kv_heads;
  first_item_.resize(shape_.n_layers * (2 * n_pairs + 1));
  n_runs_done_ = std::vector<std::atomic<uint32_t>>(n_pairs);
  const size_t n_heads = n_pairs * shape_.group;
  run_m_ = AlignedBuffer<float>(n_heads * run_stride);
  run_l_ = AlignedBuffer<float>(n_heads * run_stride);
  run_o_ = AlignedBuffer<float>(n_heads * run_stride * shape_.head_dim);
  if (keeps_masses_) AllocateMasses(n_parts, slot_stride, chunk_stride);
  if (has_cold_) AllocateCold(n_slots, n_parts);
  // Last: whoever is refused memory above goes on in buffers that are larger
  // than needed.
  slot_capacity_ = n_slots;
  part_capacity_ = n_parts;
  slot_stride_ = slot_stride;
  chunk_stride_ = chunk_stride;
  run_stride_ = run_stride;
}

void AttentionRunner::ReserveMasses() {
  if (keeps_masses_) return;
  AllocateMasses(part_capacity_, slot_stride_, chunk_stride_);
  keeps_masses_ = true;
}

void AttentionRunner::ReserveCold() {
  if (has_cold_) return;
  AllocateCold(slot_capacity_, part_capacity_);
  has_cold_ = true;
}

void AttentionRunner::AllocateCold(uint32_t n_slots, uint32_t n_parts) {
  cold_.Reserve(n_slots, n_parts);
  for (Member& member : members_) {
    member.run_pages.resize(PagesOf(n_slots));
    member.run_cold.resize(PagesOf(n_slots));
  }
}

void AttentionRunner::AllocateMasses(uint32_t n_parts, size_t slot_stride,
                                     size_t chunk_stride) {
  const size_t n_heads = size_t{n_parts} * shape_.n_heads();
  p_ = AlignedBuffer<float>(n_heads * slot_stride);
  p_max_ = AlignedBuffer<float>(n_heads * chunk_stride);
  const size_t n_rows = size_t{shape_.n_kv_heads} * kWaveRows;
  wave_max_ = AlignedBuffer<float>(n_rows * slot_stride);
  wave_mean_ = AlignedBuffer<float>(n_rows * slot_stride);
  for (Member& member : members_) {
    member.p = AlignedBuffer<float>(observed_rows_ * slot_stride);
    member.p_max = AlignedBuffer<float>(observed_rows_ * chunk_stride);
    member.mass_max = AlignedBuffer<float>(slot_stride);
    member.mass_mean = AlignedBuffer<float>(slot_stride);
  }
}

uint64_t AttentionRunner::n_bytes() const {
  size_t n_floats = 0;
  for (const AlignedBuffer<float>* buffer :
       {&run_m_, &run_l_, &run_o_, &p_, &p_max_, &wave_max_, &wave_mean_}) {
    n_floats += buffer->size();
  }
  for (const Member& member : members_) {
    for (const AlignedBuffer<float>* buffer :
         {&member.q, &member.scratch, &member.p, &member.p_max, &member.m,
          &member.l, &member.mass_max, &member.mass_mean}) {
      n_floats += buffer->size();
    }
  }
  return n_floats * sizeof(float) + cold_.n_bytes();
}

void AttentionRunner::BeginStep(std::span<const StepPart> parts) {
  CHECK(parts.size() <= part_capacity_);
  const size_t n_pairs = parts.size() * shape_.n_kv_heads;
  for (uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
    uint32_t* const first_scan = &first_item_[layer * first_item_stride()];
    uint32_t* const first_exact = first_scan + n_pairs;
    uint32_t n_exact = 0;
    uint32_t n_scan = 0;
    for (size_t pair = 0; pair < n_pairs; ++pair) {
      const StepPart& part = parts[pair / shape_.n_kv_heads];
      const uint32_t lane =
          shape_.LaneOf(layer, static_cast<uint32_t>(pair % shape_.n_kv_heads));
      const uint32_t n_slots = part.sequence->pages().table(lane).n_tokens();
      CHECK(n_slots <= slot_capacity_);
      first_exact[pair] = n_exact;
      first_scan[pair] = n_scan;
      if (part.n_tokens > 1) continue;
      n_exact += CeilDiv(n_slots, kRunSlots);
      n_scan += ColdAttention::ScanRuns(part, lane);
    }
    for (size_t pair = 0; pair < n_pairs; ++pair) first_exact[pair] += n_scan;
    first_exact[n_pairs] = n_scan + n_exact;
    read_runs_[layer] = 0;
    rest_runs_[layer] = 0;
    for (const StepPart& part : parts) {
      read_runs_[layer] =
          std::max(read_runs_[layer], cold_.MostReadRuns(part, layer));
      rest_runs_[layer] =
          std::max(rest_runs_[layer], cold_.MostRestRuns(part, layer));
    }
  }
}

void AttentionRunner::Attend(TeamMember& me, std::span<const StepPart> parts,
                             uint32_t layer, TokenRows q, float* out,
                             size_t out_stride, AttentionObserver* observer) {
  CHECK(me.n_members() <= members_.size());
  const Call call{layer, q, out, out_stride, observer};
  AttendDecodes(me, parts, call);
  for (const StepPart& part : parts) {
    if (part.n_tokens > 1) AttendPrefill(me, part, call);
  }
}

void AttentionRunner::AttendDecodes(TeamMember& me,
                                    std::span<const StepPart> parts,
                                    const Call& call) {
  Member& mine = MemberOf(me);
  const ColdAttention::Call cold_call{
      .parts = parts,
      .layer = call.layer,
      .q = call.q,
      .exact_m = run_m_.data(),
      .exact_l = run_l_.data(),
      .exact_stride = run_stride_ * shape_.group};
  const size_t n_items = FirstItems(call.layer, parts.size()).back();
  me.ForEach(n_items, [&](size_t index) {
    const LaneRun item = LaneRunOf(parts, call.layer, index);
    if (item.of == LaneRun::Of::kExact) {
      PageRun next;
      bool has_next = me.GoesOnAfter(index, n_items);
      if (has_next) {
        const LaneRun item_behind = LaneRunOf(parts, call.layer, index + 1);
        has_next = item_behind.of == LaneRun::Of::kExact;
        if (has_next) next = PagesOfRun(item_behind, call.layer);
      }
      DecodeRun(mine, item, has_next ? &next : nullptr, call);
    } else {
      cold_.Scan(cold_call, item.pair, item.run, me.index());
    }
    // acq_rel: who comes last sees the states of all runs.
    std::atomic<uint32_t>& n_done = n_runs_done_[item.pair];
    if (n_done.fetch_add(1, std::memory_order_acq_rel) + 1 <
        item.n_exact_runs + item.n_scan_runs) {
      return;
    }
    n_done.store(0, std::memory_order_relaxed);
    MergeRuns(item.pair, item.n_exact_runs);
    if (ColdAttention::Concerns(*item.part)) {
      cold_.Choose(cold_call, item.pair);
    } else {
      FinishDecode(mine, *item.part, item.pair, call);
    }
  });
  const uint32_t n_runs = read_runs_[call.layer];
  me.ForEach(parts.size() * n_runs, [&](size_t index) {
    const std::optional<size_t> pair = cold_.Read(
        cold_call, index / n_runs, static_cast<uint32_t>(index % n_runs));
    if (!pair) return;
    const size_t state = *pair * run_stride_ * shape_.group;
    cold_.MergeInto(*pair, &run_m_[state], &run_l_[state],
                    &run_o_[state * shape_.head_dim]);
    FinishDecode(mine, parts[*pair / shape_.n_kv_heads], *pair, call);
  });
  // The states still are what was attended to.
  const uint32_t n_rest = rest_runs_[call.layer];
  me.ForEach(parts.size() * n_rest, [&](size_t index) {
    cold_.ReadRest(cold_call, index / n_rest,
                   static_cast<uint32_t>(index % n_rest));
  });
}

AttentionRunner::LaneRun AttentionRunner::LaneRunOf(
    std::span<const StepPart> parts, uint32_t layer, size_t item) const {
  const std::span<const uint32_t> first_item = FirstItems(layer, parts.size());
  const size_t i =
      std::upper_bound(first_item.begin(), first_item.end(), item) -
      first_item.begin() - 1;
  const size_t n_pairs = parts.size() * shape_.n_kv_heads;
  const size_t pair = i % n_pairs;
  const auto n_runs = [&](size_t at) {
    return first_item[at + 1] - first_item[at];
  };
  return {.of = i < n_pairs ? LaneRun::Of::kScan : LaneRun::Of::kExact,
          .part = &parts[pair / shape_.n_kv_heads],
          .pair = pair,
          .kv_head = static_cast<uint32_t>(pair % shape_.n_kv_heads),
          .run = static_cast<uint32_t>(item - first_item[i]),
          .n_exact_runs = n_runs(n_pairs + pair),
          .n_scan_runs = n_runs(pair)};
}

PageRun AttentionRunner::PagesOfRun(const LaneRun& item, uint32_t layer) const {
  const SequencePages& pages = item.part->sequence->pages();
  const uint32_t lane = shape_.LaneOf(layer, item.kv_head);
  const uint32_t n_behind = pages.table(lane).n_tokens() - item.first_slot();
  return pages.Run(lane, item.first_slot(), std::min(kRunSlots, n_behind));
}

void AttentionRunner::DecodeRun(Member& mine, const LaneRun& item,
                                const PageRun* next, const Call& call) {
  const StepPart& part = *item.part;
  const size_t pair = item.pair;
  const uint32_t first_slot = item.first_slot();
  const size_t group_floats = size_t{shape_.group} * shape_.head_dim;
  ScaleQueries(call.q.data + part.first_row * call.q.stride +
                   item.kv_head * group_floats,
               0, 1, shape_.group, shape_.head_dim, mine.q.data());

  const size_t state = (pair * run_stride_ + item.run) * shape_.group;
  const bool keep_p = call.Observes(part);
  kernels_.attend_decode[static_cast<size_t>(part.sequence->type())]({
      .run = PagesOfRun(item, call.layer),
      .next = next,
      .group = shape_.group,
      .q = mine.q.data(),
      .m = &run_m_[state],
      .l = &run_l_[state],
      .o = &run_o_[state * shape_.head_dim],
      .p = keep_p ? &p_[pair * shape_.group * slot_stride_ + first_slot]
                  : nullptr,
      .p_stride = slot_stride_,
      .p_max = keep_p ? &p_max_[pair * shape_.group * chunk_stride_ +
                                first_slot / kAttendChunkSlots]
                      : nullptr,
      .p_max_stride = chunk_stride_,
  });
}

void AttentionRunner::MergeRuns(size_t pair, uint32_t n_runs) {
  const uint32_t d = shape_.head_dim;
  float* m = &run_m_[pair * run_stride_ * shape_.group];
  float* l = &run_l_[pair * run_stride_ * shape_.group];
  float* o = &run_o_[pair * run_stride_ * shape_.group * d];
  for (uint32_t run = 1; run < n_runs; ++run) {
    const size_t state = size_t{run} * shape_.group;
    MergeAttentionStates(shape_.group, d, m + state, l + state, o + state * d,
                         m, l, o);
  }
}

void AttentionRunner::FinishDecode(Member& mine, const StepPart& part,
                                   size_t pair, const Call& call) {
  const uint32_t kv_head = static_cast<uint32_t>(pair % shape_.n_kv_heads);
  const uint32_t lane = shape_.LaneOf(call.layer, kv_head);
  const uint32_t n_slots = part.sequence->pages().table(lane).n_tokens();
  const uint32_t d = shape_.head_dim;
  const float* m = &run_m_[pair * run_stride_ * shape_.group];
  const float* l = &run_l_[pair * run_stride_ * shape_.group];
  const float* o = &run_o_[pair * run_stride_ * shape_.group * d];
  float* out = call.out + part.first_row * call.out_stride +
               size_t{kv_head} * shape_.group * d;
  for (uint32_t g = 0; g < shape_.group; ++g) {
    const float scale = 1 / l[g];
    for (uint32_t c = 0; c < d; ++c) out[g * d + c] = o[g * d + c] * scale;
  }
  if (!call.Observes(part)) return;
  kernels_.reduce_mass({
      .p = &p_[pair * shape_.group * slot_stride_],
      .p_stride = slot_stride_,
      .p_max = &p_max_[pair * shape_.group * chunk_stride_],
      .p_max_stride = chunk_stride_,
      .m = m,
      .l = l,
      .group = shape_.group,
      .n_slots = n_slots,
      .mass_max = mine.mass_max.data(),
      .mass_mean = mine.mass_mean.data(),
  });
  Observe(part, call, kv_head, part.first_row,
          {.lane = lane,
           .query_pos = part.first_pos,
           .tokens_since = 1,
           .n_slots = n_slots,
           .mass_max = mine.mass_max.data(),
           .mass_mean = mine.mass_mean.data()});
}

void AttentionRunner::AttendPrefill(TeamMember& me, const StepPart& part,
                                    const Call& call) {
  Member& mine = MemberOf(me);
  const NewTokens tokens(part, call.observer);
  const bool observes = call.Observes(part);
  for (QueryRange wave; wave.end < part.n_tokens;) {
    wave = observes ? tokens.NextWave(wave.end, kWaveRows)
                    : QueryRange{0, part.n_tokens};
    const uint32_t block_queries =
        BlockQueries(wave.end - wave.begin, me.n_members());
    const uint32_t n_blocks = CeilDiv(wave.end - wave.begin, block_queries);
    me.ForEach(size_t{n_blocks} * shape_.n_kv_heads, [&](size_t item) {
      // All blocks of a lane in a row: its pages stay in the cache.
      const uint32_t block = static_cast<uint32_t>(item % n_blocks);
      const uint32_t begin = wave.begin + block * block_queries;
      PrefillBlock(mine, part, static_cast<uint32_t>(item / n_blocks),
                   {begin, std::min(begin + block_queries, wave.end)}, wave,
                   call);
    });
    if (!observes) continue;
    me.ForEach(shape_.n_kv_heads, [&](size_t head) {
      ObserveWave(part, static_cast<uint32_t>(head), wave, call);
    });
  }
}

// A wave is short, a chunk is not: a few items for each member, but none larger
// than what a kernel takes at once. (Results do not depend on the cut.)
uint32_t AttentionRunner::BlockQueries(uint32_t n_queries,
                                       uint32_t n_members) const {
  constexpr uint32_t kItemsPerMember = 4;
  return std::clamp(
      CeilDiv(n_queries * shape_.n_kv_heads, kItemsPerMember * n_members), 1u,
      block_queries_);
}

void AttentionRunner::PrefillBlock(Member& mine, const StepPart& part,
                                   uint32_t kv_head, QueryRange block,
                                   QueryRange wave, const Call& call) {
  const CachedSequence& sequence = *part.sequence;
  const uint32_t lane = shape_.LaneOf(call.layer, kv_head);
  const size_t group_floats = size_t{shape_.group} * shape_.head_dim;
  const size_t first_row = part.first_row + block.begin;
  const uint32_t n_queries = block.end - block.begin;
  const bool is_mixed = sequence.cold() != nullptr;
  const uint32_t n_before =
      is_mixed ? part.first_pos
               : sequence.pages().table(lane).n_tokens() - part.n_tokens;
  ScaleQueries(call.q.data + first_row * call.q.stride + kv_head * group_floats,
               call.q.stride, n_queries, shape_.group, shape_.head_dim,
               mine.q.data());

  const NewTokens tokens(part, call.observer);
  uint32_t observed[kWaveRows];
  uint32_t n_observed = 0;
  if (call.Observes(part)) {
    for (uint32_t t = block.begin; t < block.end; ++t) {
      if (tokens.IsObserved(t)) observed[n_observed++] = t - block.begin;
    }
  }
  const uint32_t n_slots = n_before + block.end;
  PrefillKernel(sequence)({
      .run = is_mixed ? MixedRun(mine, sequence, lane, n_slots)
                      : sequence.pages().Run(lane, 0, n_slots),
      .group = shape_.group,
      .n_queries = n_queries,
      .n_visible = n_before + block.begin + 1,
      .q = mine.q.data(),
      .q_stride = group_floats,
      .out = call.out + first_row * call.out_stride + kv_head * group_floats,
      .out_stride = call.out_stride,
      .m = mine.m.data(),
      .l = mine.l.data(),
      .observed = observed,
      .n_observed = n_observed,
      .p = mine.p.data(),
      .p_stride = slot_stride_,
      .p_max = mine.p_max.data(),
      .p_max_stride = chunk_stride_,
      .scratch = mine.scratch.data(),
  });

  uint32_t row = tokens.CountObserved({wave.begin, block.begin});
  for (uint32_t j = 0; j < n_observed; ++j, ++row) {
    const size_t to = (size_t{kv_head} * kWaveRows + row) * slot_stride_;
    kernels_.reduce_mass({
        .p = &mine.p[size_t{j} * shape_.group * slot_stride_],
        .p_stride = slot_stride_,
        .p_max = &mine.p_max[size_t{j} * shape_.group * chunk_stride_],
        .p_max_stride = chunk_stride_,
        .m = &mine.m[size_t{observed[j]} * shape_.group],
        .l = &mine.l[size_t{observed[j]} * shape_.group],
        .group = shape_.group,
        .n_slots = n_before + block.begin + observed[j] + 1,
        .mass_max = &wave_max_[to],
        .mass_mean = &wave_mean_[to],
    });
  }
}

AttentionRunner::PrefillFn* AttentionRunner::PrefillKernel(
    const CachedSequence& sequence) const {
  const bool is_bf16 = prefill_ == PrefillProducts::kBF16;
  if (sequence.cold() != nullptr) {
    return is_bf16 ? kernels_.attend_prefill_mixed_bf16
                   : kernels_.attend_prefill_mixed;
  }
  const size_t type = static_cast<size_t>(sequence.type());
  return is_bf16 ? kernels_.attend_prefill_bf16[type]
                 : kernels_.attend_prefill[type];
}

PageRun AttentionRunner::MixedRun(Member& mine, const CachedSequence& sequence,
                                  uint32_t lane, uint32_t n_slots) const {
  const ColdPages& cold = *sequence.cold();
  const PageTable& table = sequence.pages().table(lane);
  const uint32_t n_pages = PagesOf(n_slots);
  const uint32_t n_copied = cold.n_groups(lane) * kColdGroupPages;
  std::fill_n(mine.run_pages.begin(), n_pages, nullptr);
  for (uint32_t i = 0; i < table.n_pages(); ++i) {
    const uint32_t page = table.first_positions()[i] / kPageTokens;
    if (page < n_pages) mine.run_pages[page] = table.pages()[i];
  }
  for (uint32_t page = 0; page < n_pages; ++page) {
    mine.run_cold[page] =
        page < n_copied ? cold.PageAt(lane, page) : ColdPage();
  }
  return {.pages = mine.run_pages.data(),
          .n_slots = n_slots,
          .head_dim = shape_.head_dim,
          .cold = mine.run_cold.data()};
}

void AttentionRunner::ObserveWave(const StepPart& part, uint32_t kv_head,
                                  QueryRange wave, const Call& call) {
  const NewTokens tokens(part, call.observer);
  const uint32_t lane = shape_.LaneOf(call.layer, kv_head);
  const PageTable& table = part.sequence->pages().table(lane);
  const uint32_t n_before = table.n_tokens() - part.n_tokens;
  size_t from = size_t{kv_head} * kWaveRows * slot_stride_;
  for (uint32_t t = wave.begin; t < wave.end; ++t) {
    if (!tokens.IsObserved(t)) continue;
    if (part.sequence->cold() != nullptr) {
      KeepExactOnly(table, &wave_max_[from]);
      KeepExactOnly(table, &wave_mean_[from]);
    }
    Observe(part, call, kv_head, part.first_row + t,
            {.lane = lane,
             .query_pos = tokens.first_pos + t,
             .tokens_since = tokens.TokensSince(t),
             .n_slots = n_before + t + 1,
             .mass_max = &wave_max_[from],
             .mass_mean = &wave_mean_[from]});
    from += slot_stride_;
  }
}

void AttentionRunner::Observe(const StepPart& part, const Call& call,
                              uint32_t kv_head, size_t row,
                              const LaneObservation& observation) const {
  if (LaneEvidence* evidence = part.sequence->evidence()) {
    const size_t head = size_t{kv_head} * shape_.group * shape_.head_dim;
    evidence->Observe(observation, call.q.data + row * call.q.stride + head,
                      call.out + row * call.out_stride + head,
                      part.sequence->pages());
  }
  if (call.observer != nullptr) {
    call.observer->OnAttention({.sequence = part.sequence->id(),
                                .layer = call.layer,
                                .kv_head = kv_head,
                                .query_pos = observation.query_pos,
                                .n_slots = observation.n_slots,
                                .mass_max = observation.mass_max,
                                .mass_mean = observation.mass_mean});
  }
}

}  // namespace lkv
