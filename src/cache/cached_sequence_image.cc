// How a sequence leaves the cache and comes back (sequence_image.h).
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "cache/cached_sequence.h"

namespace lkv {
namespace {

// Tokens that a lane has, from the first on, each at its place.
uint32_t CompleteTokens(const PageTable& table) {
  uint32_t n_pages = 0;
  for (const uint32_t first_pos : table.first_positions()) {
    if (first_pos != n_pages * kPageTokens) break;
    ++n_pages;
  }
  return std::min(table.n_tokens(), n_pages * kPageTokens);
}

Status StateDiffers() {
  return InvalidArgument(
      "state: does not fit a sequence of these options; read the text anew");
}

}  // namespace

bool CachedSequence::HasPagesLike(const SequenceLayout& layout) const {
  return layout.type == type_ && layout.n_exact_pages == cost_.exact_pages;
}

SequenceLayout CachedSequence::Layout() const {
  SequenceLayout layout(shape_.n_lanes());
  layout.type = type_;
  layout.n_exact_pages = cost_.exact_pages;
  layout.complete_tokens = std::numeric_limits<uint32_t>::max();
  for (uint32_t lane = 0; lane < shape_.n_lanes(); ++lane) {
    const PageTable& table = pages_.table(lane);
    layout.n_pages[lane] = table.n_pages();
    layout.complete_tokens =
        std::min(layout.complete_tokens, CompleteTokens(table));
    if (cold_.has_value()) layout.n_groups[lane] = cold_->n_groups(lane);
  }
  return layout;
}

std::vector<uint8_t> CachedSequence::SaveState() {
  std::vector<uint8_t> rest;
  StateStream rest_stream(&rest);
  ExchangeRest(rest_stream);

  ImageHead head(shape_.n_lanes());
  head.n_tokens = n_tokens_;
  head.prompt_tokens = options_.prompt_tokens;
  head.max_new_tokens = options_.max_new_tokens;
  head.budget = options_.cache.budget;
  head.pinned = options_.pinned;
  head.layout = Layout();
  head.has_rest = rest_stream.ok();
  std::vector<uint8_t> state;
  StateStream stream(&state);
  head.ExchangeState(stream);
  CHECK(stream.ok());
  if (head.has_rest) state.insert(state.end(), rest.begin(), rest.end());
  return state;
}

void CachedSequence::ExchangeRest(StateStream& stream) {
  stream.Exchange(resident_bytes_max_);
  pages_.ExchangeState(stream, n_tokens_);
  if (stream.ExchangePresence(cold_)) {
    cold_->ExchangeState(stream);
    for (uint32_t lane = 0; lane < shape_.n_lanes(); ++lane) {
      stream.Require(cold_->n_groups(lane) == GroupsDue(lane));
    }
  }
  if (stream.ExchangePresence(guard_)) {
    guard_->ExchangeState(stream);
    if (stream.ok())
      attend_share_ = guard_->Widened(options_.cache.attend_share);
  }
  if (!stream.ExchangePresence(judge_)) return;
  judge_->evidence.ExchangeState(stream, pages_);
  judge_->policy->ExchangeState(stream);
  if (!stream.ok()) return;
  if (judge_->detector.has_value()) judge_->detector->ExchangeState(stream);
  judge_->spread.ExchangeState(stream);
  judge_->evictor.ExchangeState(stream);
}

void CachedSequence::CopyPiece(const ImagePiece& piece,
                               std::span<uint8_t> out) const {
  CHECK(out.size() == piece.n_bytes);
  uint8_t* to = out.data();
  for (uint32_t lane = 0; lane < shape_.n_lanes(); ++lane) {
    if (piece.kind == ImagePiece::Kind::kColdGroups) {
      const size_t n_bytes = ColdPages::GroupPayloadBytes(shape_.head_dim);
      const uint32_t end = std::min(piece.end, cold_->n_groups(lane));
      for (uint32_t i = piece.first; i < end; ++i, to += n_bytes) {
        cold_->CopyGroup(lane, i, to);
      }
      continue;
    }
    const std::span<uint8_t* const> pages = pages_.table(lane).pages();
    const uint32_t end =
        std::min(piece.end, static_cast<uint32_t>(pages.size()));
    for (uint32_t i = piece.first; i < end; ++i) {
      std::memcpy(to, pages[i], pages_.PageBytes(i));
      to += pages_.PageBytes(i);
    }
  }
  CHECK(to == out.data() + out.size());
}

void CachedSequence::FillPiece(const SequenceLayout& from,
                               const ImagePiece& piece,
                               std::span<const uint8_t> bytes) {
  CHECK(bytes.size() == piece.n_bytes);
  const uint8_t* next = bytes.data();
  for (uint32_t lane = 0; lane < shape_.n_lanes(); ++lane) {
    if (piece.kind == ImagePiece::Kind::kColdGroups) {
      const size_t n_bytes = ColdPages::GroupPayloadBytes(shape_.head_dim);
      const uint32_t end = std::min(piece.end, from.n_groups[lane]);
      for (uint32_t i = piece.first; i < end; ++i, next += n_bytes) {
        // The copies of a beginning are made of its pages.
        if (!is_beginning_) cold_->SetGroup(lane, i, next);
      }
      continue;
    }
    const std::span<uint8_t* const> pages = pages_.table(lane).pages();
    const uint32_t end = std::min(piece.end, from.n_pages[lane]);
    for (uint32_t i = piece.first; i < end; ++i) {
      const size_t n_bytes = from.PageBytes(shape_, i);
      if (i < pages.size()) std::memcpy(pages[i], next, n_bytes);
      next += n_bytes;
    }
  }
  CHECK(next == bytes.data() + bytes.size());
}

Result<std::unique_ptr<CachedSequence>> CachedSequence::Restore(
    SequenceId id, const KvShape& shape, const KernelTable& kernels,
    const ModelAndMachine& given, const SequenceOptions& asked,
    std::span<const uint8_t> state) {
  StateStream stream(state);
  ImageHead head(shape.n_lanes());
  head.ExchangeState(stream);
  if (!stream.ok() || !head.has_rest) return StateDiffers();
  SequenceOptions options = asked;
  options.prompt_tokens = head.prompt_tokens;
  options.max_new_tokens = head.max_new_tokens;
  options.cache.budget = head.budget;
  options.pinned = std::move(head.pinned);
  Result<std::unique_ptr<CachedSequence>> created =
      Create(id, shape, kernels, given, options);
  if (!created.ok()) return created.status();
  CachedSequence& sequence = **created;
  if (!sequence.HasPagesLike(head.layout)) return StateDiffers();
  sequence.n_tokens_ = head.n_tokens;
  sequence.ExchangeRest(stream);
  const SequenceLayout layout = sequence.Layout();
  if (!stream.IsDone() || layout.n_pages != head.layout.n_pages ||
      layout.n_groups != head.layout.n_groups ||
      sequence.ResidentBytes() > sequence.plan_.budget_bytes) {
    return StateDiffers();
  }
  return created;
}

Result<std::unique_ptr<CachedSequence>> CachedSequence::RestoreBeginning(
    SequenceId id, const KvShape& shape, const KernelTable& kernels,
    const ModelAndMachine& given, const SequenceOptions& options,
    const SequenceLayout& from, uint32_t n_tokens) {
  CHECK(n_tokens <= from.complete_tokens);
  Result<std::unique_ptr<CachedSequence>> created =
      Create(id, shape, kernels, given, options);
  if (!created.ok()) return created.status();
  CachedSequence& sequence = **created;
  if (!sequence.HasPagesLike(from)) return StateDiffers();
  if (!sequence.plan_.holds_whole_text ||
      n_tokens > sequence.plan_.text_tokens) {
    return InvalidArgument(
        "budget: does not hold the whole text, so nothing that was read before "
        "can be put into it; raise it or set read to whole");
  }
  sequence.pages_.Extend(0, n_tokens);
  sequence.n_tokens_ = n_tokens;
  sequence.is_beginning_ = true;
  return created;
}

void CachedSequence::FinishRestoring() {
  pages_.FinishContents();
  if (std::exchange(is_beginning_, false)) {
    if (cold_.has_value()) {
      OpenGroups();
      for (uint32_t lane = 0; lane < shape_.n_lanes(); ++lane) CopyGroups(lane);
    }
    if (judge_.has_value()) {
      judge_->evictor.SetPlan(plan_, WindowNow(), n_tokens_);
    }
  }
  resident_bytes_max_ = std::max(resident_bytes_max_, ResidentBytes());
  read_bytes_last_step_ = 0;
}

}  // namespace lkv
