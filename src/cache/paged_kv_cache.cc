#include "cache/paged_kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/cached_sequence.h"

namespace lkv {

PagedKvCache::PagedKvCache(const KvShape& shape,
                           const PagedKvCacheOptions& options)
    : shape_(shape),
      options_(options),
      attention_(shape, *options.kernels, options.max_threads,
                 options.prefill_products),
      plan_scratch_(options.max_threads) {
  CHECK(shape.n_lanes() > 0 && shape.group > 0);
  CHECK(shape.head_dim > 0 && shape.head_dim % kPageTokens == 0);
  CHECK(shape.head_dim <= kMaxHeadDim);
}

PagedKvCache::~PagedKvCache() = default;

ModelAndMachine PagedKvCache::Given() const {
  return {.max_seq_tokens = options_.max_seq_tokens,
          .memory_bytes = options_.memory_bytes,
          .rotation = options_.rotation};
}

Result<SequenceId> PagedKvCache::AddSequence(const SequenceOptions& options) {
  Result<std::unique_ptr<CachedSequence>> sequence = CachedSequence::Create(
      SequenceId{next_id_}, shape_, *options_.kernels, Given(), options);
  if (!sequence.ok()) return sequence.status();
  return Admit(*std::move(sequence));
}

Result<SequenceId> PagedKvCache::ForkSequence(SequenceId parent) {
  Result<std::unique_ptr<CachedSequence>> sequence =
      Find(parent).Fork(SequenceId{next_id_});
  if (!sequence.ok()) return sequence.status();
  return Admit(*std::move(sequence));
}

std::vector<uint8_t> PagedKvCache::SaveState(SequenceId id) {
  return Find(id).SaveState();
}

SequenceLayout PagedKvCache::Layout(SequenceId id) const {
  return Find(id).Layout();
}

void PagedKvCache::CopyPiece(SequenceId id, const ImagePiece& piece,
                             std::span<uint8_t> out) const {
  Find(id).CopyPiece(piece, out);
}

Result<SequenceId> PagedKvCache::RestoreSequence(
    const SequenceOptions& options, std::span<const uint8_t> state) {
  Result<std::unique_ptr<CachedSequence>> sequence = CachedSequence::Restore(
      SequenceId{next_id_}, shape_, *options_.kernels, Given(), options, state);
  if (!sequence.ok()) return sequence.status();
  return Admit(*std::move(sequence));
}

Result<SequenceId> PagedKvCache::RestoreBeginning(
    const SequenceOptions& options, const SequenceLayout& from,
    uint32_t n_tokens) {
  Result<std::unique_ptr<CachedSequence>> sequence =
      CachedSequence::RestoreBeginning(SequenceId{next_id_}, shape_,
                                       *options_.kernels, Given(), options,
                                       from, n_tokens);
  if (!sequence.ok()) return sequence.status();
  return Admit(*std::move(sequence));
}

void PagedKvCache::FillPiece(SequenceId id, const SequenceLayout& from,
                             const ImagePiece& piece,
                             std::span<const uint8_t> bytes) {
  Find(id).FillPiece(from, piece, bytes);
}

void PagedKvCache::FinishRestoring(SequenceId id) {
  Find(id).FinishRestoring();
}

SequenceId PagedKvCache::Admit(std::unique_ptr<CachedSequence> sequence) {
  // All that may be refused memory comes before the first change.
  const size_t n_sequences = sequences_.size() + 1;
  ReserveScratch(sequence->LanePagesFor(0), n_sequences);
  if (observer_ != nullptr || sequence->evidence() != nullptr) {
    attention_.ReserveMasses();
  }
  if (sequence->cold() != nullptr) attention_.ReserveCold();
  step_.reserve(n_sequences);
  const SequenceId id = sequence->id();
  sequences_.emplace(id, std::move(sequence));
  ++next_id_;
  return id;
}

void PagedKvCache::ReserveScratch(uint32_t lane_pages, size_t n_sequences) {
  attention_.Reserve(lane_pages * kPageTokens,
                     static_cast<uint32_t>(n_sequences));
  for (PlanScratch& scratch : plan_scratch_) scratch.Reserve(lane_pages);
}

Status PagedKvCache::AnnounceTurn(SequenceId id, uint32_t prompt_tokens,
                                  uint32_t max_new_tokens) {
  CachedSequence& sequence = Find(id);
  Status status = sequence.AnnounceTurn(prompt_tokens, max_new_tokens);
  if (status.ok()) ReserveFor(sequence);
  return status;
}

Status PagedKvCache::ShrinkBudget(SequenceId id, const Budget& budget,
                                  uint32_t room_tokens) {
  CachedSequence& sequence = Find(id);
  Status status = sequence.ShrinkBudget(budget, room_tokens, plan_scratch_[0]);
  if (status.ok()) ReserveFor(sequence);
  return status;
}

void PagedKvCache::ReserveFor(const CachedSequence& sequence) {
  ReserveScratch(sequence.LanePagesFor(0), sequences_.size());
  if (sequence.cold() != nullptr) attention_.ReserveCold();
}

void PagedKvCache::RemoveSequence(SequenceId id) {
  CHECK(sequences_.erase(id) == 1);
}

CachedSequence& PagedKvCache::Find(SequenceId id) const {
  auto it = sequences_.find(id);
  CHECK(it != sequences_.end());
  return *it->second;
}

SequenceStats PagedKvCache::Stats(SequenceId id) const {
  return Find(id).Stats();
}

std::vector<uint32_t> PagedKvCache::ResidentPositions(SequenceId id,
                                                      uint32_t layer,
                                                      uint32_t kv_head) const {
  const PageTable& table =
      Find(id).pages().table(shape_.LaneOf(layer, kv_head));
  std::vector<uint32_t> positions(table.n_tokens());
  for (uint32_t slot = 0; slot < positions.size(); ++slot) {
    positions[slot] = table.PositionOf(slot);
  }
  // Scattered pages overlap.
  std::sort(positions.begin(), positions.end());
  return positions;
}

uint32_t PagedKvCache::ChunkTokens(SequenceId id, uint32_t wanted) const {
  return Find(id).ChunkTokens(wanted);
}

void PagedKvCache::SetObserver(AttentionObserver* observer) {
  observer_ = observer;
  if (observer != nullptr) attention_.ReserveMasses();
}

std::vector<PageExplanation> PagedKvCache::Explain(SequenceId id,
                                                   uint32_t layer,
                                                   uint32_t kv_head) const {
  return Find(id).Explain(layer, kv_head);
}

Status PagedKvCache::BeginStep(std::span<const StepEntry> entries) {
  step_.clear();
  size_t row = 0;
  for (const StepEntry& entry : entries) {
    CHECK(entry.n_tokens > 0);
    CachedSequence& sequence = Find(entry.sequence);
    ReserveScratch(sequence.LanePagesFor(entry.n_tokens), sequences_.size());
    if (Status s = sequence.MakeRoom(entry.n_tokens, plan_scratch_[0]);
        !s.ok()) {
      step_.clear();
      return s;
    }
    step_.push_back({&sequence, sequence.n_tokens(), entry.n_tokens, row});
    row += entry.n_tokens;
  }
  for (const StepPart& part : step_) part.sequence->OpenPages(part.n_tokens);
  attention_.BeginStep(step_);
  return {};
}

void PagedKvCache::Append(uint32_t layer, uint32_t kv_head, TokenRows k,
                          TokenRows v) {
  const uint32_t lane = shape_.LaneOf(layer, kv_head);
  for (const StepPart& part : step_) {
    SequencePages& pages = part.sequence->pages();
    const uint32_t first_slot = pages.table(lane).n_tokens() - part.n_tokens;
    for (uint32_t token = 0; token < part.n_tokens; ++token) {
      const size_t row = part.first_row + token;
      pages.Write(*options_.kernels, lane, first_slot + token,
                  k.data + row * k.stride, v.data + row * v.stride);
    }
  }
}

void PagedKvCache::Attend(TeamMember& me, uint32_t layer, TokenRows q,
                          float* out, size_t out_stride) {
  attention_.Attend(me, step_, layer, q, out, out_stride, observer_);
}

void PagedKvCache::EndStep(TeamMember& me) {
  CHECK(me.n_members() <= plan_scratch_.size());
  const bool judges =
      std::any_of(step_.begin(), step_.end(), [](const StepPart& part) {
        return part.sequence->evidence() != nullptr;
      });
  if (judges) {
    me.ForEach(shape_.n_lanes(), [&](size_t lane) {
      for (const StepPart& part : step_) {
        part.sequence->EvaluateLane(static_cast<uint32_t>(lane), part.n_tokens,
                                    plan_scratch_[me.index()]);
      }
    });
  }
  me.ForEach(1, [&](size_t) {
    for (const StepPart& part : step_) part.sequence->Advance(part.n_tokens);
  });
  if (judges) {
    me.ForEach(shape_.n_lanes(), [&](size_t lane) {
      for (const StepPart& part : step_) {
        part.sequence->PlanLane(static_cast<uint32_t>(lane), part.n_tokens,
                                plan_scratch_[me.index()]);
      }
    });
  }
}

}  // namespace lkv
