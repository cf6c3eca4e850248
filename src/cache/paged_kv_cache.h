// PagedKvCache: the cache of the product. Keys and values live in pages, every
// lane has its own page table, and each sequence stays inside its own budget by
// evicting the pages that its policy values least.
//
// A sequence owns a pool of pages with exactly as many as its budget pays for,
// and addresses for those of its longest text, so the cap cannot be passed by
// mistake and removing a sequence gives all of its memory back at once. Forks
// share the pages of their common text, which the last of them gives back; each
// page is charged in full to the budget of everyone who holds it.
//
// Results depend on the calls alone, not on the size of the team: attention is
// split at fixed slots and merged in a fixed order, and every decision is made
// per lane or by one member in a phase of its own.
//
// Thread rule: as KvCache. A decode step costs O(resident tokens) and allocates
// nothing: AddSequence, ForkSequence and AnnounceTurn take the scratch that the
// text announced will need. A text that grows past that makes BeginStep take,
// once, the scratch for the longest text of its admission. All four throw
// std::bad_alloc when the system refuses memory; the cache is then as before
// AddSequence and ForkSequence.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cache/attention_runner.h"
#include "cache/kv_cache.h"
#include "cache/page_explanation.h"
#include "cache/rotation.h"
#include "cache/sequence_image.h"
#include "kernels/kernel_table.h"

namespace lkv {

class CachedSequence;
struct ModelAndMachine;

struct PagedKvCacheOptions {
  // The attention kernels. Required.
  const KernelTable* kernels = nullptr;
  // The largest team that will call: scratch is made per member.
  uint32_t max_threads = 1;
  // Of attention of several new tokens: kBF16 for whoever computes their
  // queries and keys with 8-bit activations, whose rounding is 30 times as
  // large.
  PrefillProducts prefill_products = PrefillProducts::kF32;
  // For window keys that say `auto`: the longest sequence of the model, and the
  // memory that KV may live in.
  uint64_t max_seq_tokens = 0;
  uint64_t memory_bytes = 0;
  // How the model turns queries and keys. Whoever leaves this empty turns
  // nothing, or policy expected_attention expects nonsense.
  Rotation rotation = {};
};

class PagedKvCache final : public KvCache {
 public:
  // Requires shape.head_dim to be a multiple of 16.
  PagedKvCache(const KvShape& shape, const PagedKvCacheOptions& options);
  ~PagedKvCache() override;

  const KvShape& shape() const override { return shape_; }
  Result<SequenceId> AddSequence(const SequenceOptions& options) override;
  Result<SequenceId> ForkSequence(SequenceId parent) override;
  Status AnnounceTurn(SequenceId id, uint32_t prompt_tokens,
                      uint32_t max_new_tokens) override;
  Status ShrinkBudget(SequenceId id, const Budget& budget,
                      uint32_t room_tokens) override;
  void RemoveSequence(SequenceId id) override;
  SequenceStats Stats(SequenceId id) const override;
  std::vector<uint32_t> ResidentPositions(SequenceId id, uint32_t layer,
                                          uint32_t kv_head) const override;
  uint32_t ChunkTokens(SequenceId id, uint32_t wanted) const override;
  void SetObserver(AttentionObserver* observer) override;

  Status BeginStep(std::span<const StepEntry> entries) override;
  void Append(uint32_t layer, uint32_t kv_head, TokenRows k,
              TokenRows v) override;
  void Attend(TeamMember& me, uint32_t layer, TokenRows q, float* out,
              size_t out_stride) override;
  void EndStep(TeamMember& me) override;

  // A sequence outside of the cache (sequence_image.h), all between steps. Its
  // state, a few percent of the payload: what a sequence needs, beside the
  // pieces, to go on as if nothing had happened. Allocates it; O(slots).
  std::vector<uint8_t> SaveState(SequenceId id);
  SequenceLayout Layout(SequenceId id) const;
  // [piece.n_bytes]
  void CopyPiece(SequenceId id, const ImagePiece& piece,
                 std::span<uint8_t> out) const;

  // A sequence that goes on from such a state, with the lengths, the budget and
  // the pinned ranges that it had; the other options are to be those that it
  // had. All pieces are to be filled in before anything else (but
  // RemoveSequence), different ones by any threads, then FinishRestoring
  // called. kInvalidArgument: the state does not fit the options.
  Result<SequenceId> RestoreSequence(const SequenceOptions& options,
                                     std::span<const uint8_t> state);
  // A new sequence that begins with n_tokens tokens of which nothing is known
  // but keys and values: those of the first pieces of another one, whose
  // layout is `from` and whose complete_tokens are at least as many. Pieces
  // whose first page is PagesOf(n_tokens) or more are of no use to it.
  // kInvalidArgument: its budget does not hold the text that it is admitted
  // for, or its pages are of another type.
  Result<SequenceId> RestoreBeginning(const SequenceOptions& options,
                                      const SequenceLayout& from,
                                      uint32_t n_tokens);
  // `from`: the layout that the piece is cut from.
  void FillPiece(SequenceId id, const SequenceLayout& from,
                 const ImagePiece& piece, std::span<const uint8_t> bytes);
  void FinishRestoring(SequenceId id);

  // Why each resident page of a lane is there, in position order; between
  // steps only.
  std::vector<PageExplanation> Explain(SequenceId id, uint32_t layer,
                                       uint32_t kv_head) const;

  // Bytes that attention works in, for the longest lane of any sequence's
  // text as announced so far. The system gives them as they are used.
  uint64_t scratch_bytes() const { return attention_.n_bytes(); }

 private:
  ModelAndMachine Given() const;
  CachedSequence& Find(SequenceId id) const;
  // Takes a sequence in and makes the room that its steps need.
  SequenceId Admit(std::unique_ptr<CachedSequence> sequence);
  // Scratch for the steps of a sequence that is there.
  void ReserveFor(const CachedSequence& sequence);
  // Scratch for so many sequences with lanes of that many pages. Nothing to do
  // for most steps.
  void ReserveScratch(uint32_t lane_pages, size_t n_sequences);

  const KvShape shape_;
  const PagedKvCacheOptions options_;
  std::map<SequenceId, std::unique_ptr<CachedSequence>> sequences_;
  uint32_t next_id_ = 0;
  std::vector<StepPart> step_;  // the step under way
  AttentionRunner attention_;
  std::vector<PlanScratch> plan_scratch_;  // [max_threads]
  AttentionObserver* observer_ = nullptr;
};

}  // namespace lkv
