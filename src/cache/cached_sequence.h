// CachedSequence: everything the paged cache holds for one sequence: its pages,
// its budget and, unless nothing may ever leave, what judges the pages.
//
// Thread rule: see LaneEvidence and Evictor; what is not per lane is one
// caller's. Allocates in Create and Fork only, for the longest text.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "cache/budget_plan.h"
#include "cache/evictor.h"
#include "cache/kv_cache.h"
#include "cache/lane_evidence.h"
#include "cache/rotation.h"
#include "cache/sequence_image.h"
#include "cache/sequence_pages.h"
#include "kernels/kernel_table.h"
#include "policy/recall_guard.h"
#include "store/cold_pages.h"

namespace lkv {

// What a sequence must know beside its options (PagedKvCacheOptions).
struct ModelAndMachine {
  uint64_t max_seq_tokens = 0;
  uint64_t memory_bytes = 0;
  Rotation rotation = {};
};

class CachedSequence {
 public:
  static Result<std::unique_ptr<CachedSequence>> Create(
      SequenceId id, const KvShape& shape, const KernelTable& kernels,
      const ModelAndMachine& given, const SequenceOptions& options);

  // Another sequence in the state of this one, which shares its pages; between
  // steps.
  Result<std::unique_ptr<CachedSequence>> Fork(SequenceId id);

  SequenceId id() const { return id_; }
  KvType type() const { return type_; }
  uint32_t n_tokens() const { return n_tokens_; }
  SequencePages& pages() { return pages_; }
  const SequencePages& pages() const { return pages_; }
  // Coarse copies of its tokens; nullptr when there are none.
  const ColdPages* cold() const { return cold_ ? &*cold_ : nullptr; }
  double attend_share() const { return attend_share_; }
  // The layer of the step under way that also reads what it leaves out.
  bool SamplesRecall(uint32_t layer) const { return layer == sampled_layer_; }
  // What that layer left out, as a share of its attention; by one thread.
  void SetRecallGap(double gap) { recall_gap_ = gap; }
  // A step has read so many bytes of cold pages; by any thread.
  void CountColdRead(uint64_t n_bytes) {
    cold_read_bytes_.fetch_add(n_bytes, std::memory_order_relaxed);
  }
  // nullptr when the policy keeps everything: nobody wants to know.
  LaneEvidence* evidence() {
    return judge_.has_value() ? &judge_->evidence : nullptr;
  }

  // See PagedKvCache. What is restored takes part in nothing until
  // FinishRestoring.
  static Result<std::unique_ptr<CachedSequence>> Restore(
      SequenceId id, const KvShape& shape, const KernelTable& kernels,
      const ModelAndMachine& given, const SequenceOptions& options,
      std::span<const uint8_t> state);
  static Result<std::unique_ptr<CachedSequence>> RestoreBeginning(
      SequenceId id, const KvShape& shape, const KernelTable& kernels,
      const ModelAndMachine& given, const SequenceOptions& options,
      const SequenceLayout& from, uint32_t n_tokens);
  void FillPiece(const SequenceLayout& from, const ImagePiece& piece,
                 std::span<const uint8_t> bytes);
  void FinishRestoring();
  std::vector<uint8_t> SaveState();
  SequenceLayout Layout() const;
  void CopyPiece(const ImagePiece& piece, std::span<uint8_t> out) const;

  // See KvCache.
  Status AnnounceTurn(uint32_t prompt_tokens, uint32_t max_new_tokens);
  Status ShrinkBudget(const Budget& budget, uint32_t room_tokens,
                      PlanScratch& scratch);
  SequenceStats Stats() const;
  uint32_t ChunkTokens(uint32_t wanted) const;
  // The most pages a lane holds while the text keeps to what was announced; at
  // any length, once n_new more tokens lead beyond.
  uint32_t LanePagesFor(uint32_t n_new) const;
  std::vector<PageExplanation> Explain(uint32_t layer, uint32_t kv_head) const;

  // A step of n_new tokens begins: room first, for all sequences of the step,
  // then the pages that the tokens need.
  Status MakeRoom(uint32_t n_new, PlanScratch& scratch);
  void OpenPages(uint32_t n_new);
  // It ends: every lane is evaluated, by any thread; then one caller advances;
  // then every lane is planned, by any thread.
  void EvaluateLane(uint32_t lane, uint32_t n_new, PlanScratch& scratch);
  void Advance(uint32_t n_new);
  void PlanLane(uint32_t lane, uint32_t n_new, PlanScratch& scratch);

 private:
  // What judges pages; absent when nothing may ever leave. Members refer to
  // each other and to the sequence's pages, so it never moves.
  struct Judge {
    Judge(const KvShape& shape, const KernelTable& kernels,
          const Rotation& rotation, const SequenceOptions& options,
          const BudgetPlan& plan, const WindowController::Options& window,
          SequencePages& pages);
    Judge(const Judge& other, SequencePages& pages);

    PatternDetector* Detector() {
      return detector.has_value() ? &*detector : nullptr;
    }
    LaneEvidence::Judges Judges() {
      return {policy.get(), Detector(), &spread};
    }
    Evictor::Parts Parts(SequencePages& pages) {
      return {&pages, policy.get(), Detector(), &spread, &evidence};
    }

    std::unique_ptr<EvictionPolicy> policy;
    std::optional<PatternDetector> detector;
    LaneSpread spread;
    LaneEvidence evidence;
    Evictor evictor;
  };

  CachedSequence(SequenceId id, const KvShape& shape,
                 const KernelTable& kernels, const ModelAndMachine& given,
                 const SequenceOptions& options, const BudgetPlan& plan,
                 const CacheCost& cost, SequencePages pages);
  CachedSequence(SequenceId id, const CachedSequence& other,
                 SequencePages pages, std::optional<ColdPages> cold);

  uint64_t ColdBytes() const { return cold_ ? cold_->n_bytes() : 0; }
  uint64_t ResidentBytes() const {
    return pages_.payload_bytes() +
           cost_.MetadataBytes(shape_, pages_.n_used()) + ColdBytes();
  }
  WindowController::Options WindowNow() const;
  // Whether pages of such a layout are pages of this sequence.
  bool HasPagesLike(const SequenceLayout& layout) const;
  // All but the head.
  void ExchangeRest(StateStream& stream);
  // If the plan wants it, tokens are copied from now on, those so far at once:
  // all of them are there. Whoever is refused memory is as before.
  Status StartCopying(const BudgetPlan& plan);
  // A group of a lane is copied once it is full, but lanes take turns, or every
  // 64th step of a decode would be an outlier. (The newest 128 tokens do not
  // leave before: CheckTiers.)
  uint32_t GroupsDue(uint32_t lane) const {
    const uint32_t turn = lane % kColdGroupSlots;
    return n_tokens_ < turn ? 0 : (n_tokens_ - turn) / kColdGroupSlots;
  }
  // Takes in the sample of the step that ends.
  void UpdateGuard();
  // What the guard's level means.
  void ApplyGuard();
  void OpenGroups();
  void CopyGroups(uint32_t lane);

  const SequenceId id_;
  const KvShape shape_;
  const ModelAndMachine given_;
  SequenceOptions options_;  // lengths as announced last
  const KvType type_;
  BudgetPlan plan_;
  const CacheCost cost_;
  SequencePages pages_;
  const KernelTable& kernels_;
  std::optional<ColdPages> cold_;
  std::optional<Judge> judge_;
  std::optional<RecallGuard> guard_;
  double attend_share_;  // as the guard has widened it
  uint32_t sampled_layer_;
  double recall_gap_ = 0;
  uint32_t n_tokens_ = 0;
  uint64_t resident_bytes_max_ = 0;
  // Only the payload of the beginning was restored: what judges it is told by
  // the steps to come.
  bool is_beginning_ = false;
  uint64_t read_bytes_last_step_ = 0;
  std::atomic<uint64_t> cold_read_bytes_ = 0;  // of the step under way
};

}  // namespace lkv
