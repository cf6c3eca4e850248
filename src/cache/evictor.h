// Evictor: decides which pages of one sequence leave, and when.
//
// Decode. Lanes take turns (policy/lane_turn.h). At its turn a lane plans to
// have one spare page less than it may hold, because all lanes open a page in
// the same step. The plan is applied when the next step begins. Prefill: all
// lanes plan when a chunk ends, and again when the next one begins, for the
// room that it needs.
//
// How many pages a lane may hold comes from the budget or, when window keys are
// given, from the window that the controller wants; LaneSpread shares the total
// among lanes. Should a plan not free enough (protected pages, changed
// targets), MakeRoom evicts the lowest pages of the fullest lanes until the
// step fits, or refuses the step.
//
// Thread rule: PlanLane and EvaluateLane for different lanes may run at the
// same time, each with scratch of its own; everything else is one caller's.
// Allocates in the constructor, and where lanes are levelled by score
// (LaneSpreadMode::kScore): when a prompt is cut down.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/budget_plan.h"
#include "cache/kv_cache.h"
#include "cache/lane_evidence.h"
#include "cache/page_explanation.h"
#include "cache/sequence_pages.h"
#include "lookaheadkv/status.h"
#include "policy/eviction_policy.h"
#include "policy/lane_spread.h"
#include "policy/pattern_detector.h"
#include "policy/repacking.h"
#include "policy/score_threshold.h"
#include "policy/window_controller.h"

namespace lkv {

// Room for the scores of one lane's pages and slots; between plans also for
// what is expected of its slots.
struct PlanScratch {
  std::vector<uint8_t> is_protected;
  std::vector<float> slot_attention;
  std::vector<float> slot_score;
  std::vector<float> attention;
  std::vector<float> score;
  std::vector<float> sorted;
  std::vector<uint32_t> victims;  // pages
  std::vector<uint32_t> slot_victims;
  std::vector<uint32_t> pages;  // the result
  std::vector<uint32_t> slots;

  // Grows every array to n_pages.
  void Reserve(uint32_t n_pages);
};

class Evictor {
 public:
  // Pages of a lane that may leave at one turn: what a shrinking window asks
  // for is spread over several turns. (A lane gains one page between turns.)
  static constexpr uint32_t kMaxMovesPerTurn = 8;

  // What it works on. Borrowed; all outlive it.
  struct Parts {
    SequencePages* pages;
    EvictionPolicy* policy;
    PatternDetector* detector;  // nullptr when the window is fixed
    LaneSpread* spread;
    LaneEvidence* evidence;
  };

  Evictor(const KvShape& shape, const SequenceOptions& options,
          const BudgetPlan& plan, const WindowController::Options& window,
          const Parts& parts);
  // In the state of `other`, for another sequence's parts.
  Evictor(const Evictor& other, const Parts& parts) : Evictor(other) {
    parts_ = parts;
  }

  // Applies the plans, then makes sure that every lane can open
  // `pages_to_open` pages. kOutOfMemory when protected pages fill the budget.
  Status MakeRoom(uint32_t n_tokens, uint32_t pages_to_open,
                  PlanScratch& scratch);

  // A step has ended that brought the sequence to n_tokens with n_new of them.
  // First for every lane, then once for the sequence, then again for every
  // lane: three phases, each over before the next.
  void EvaluateLane(uint32_t lane, uint32_t n_tokens, uint32_t n_new);
  void UpdateTargets(uint32_t n_tokens, uint32_t n_new);
  void PlanLane(uint32_t lane, uint32_t n_tokens, uint32_t n_new,
                PlanScratch& scratch);

  // Between steps: another budget for the sequence, of n_tokens so far. What
  // was planned to leave for the sake of the old one stays.
  void SetPlan(const BudgetPlan& plan, const WindowController::Options& window,
               uint32_t n_tokens);
  // The same for a smaller budget: what is over leaves now, and the pages that
  // every lane opens for the next `room_tokens` tokens and the one behind them.
  void Shrink(const BudgetPlan& plan, const WindowController::Options& window,
              uint32_t n_tokens, uint32_t room_tokens, PlanScratch& scratch);

  // Its own, not that of its parts; between steps, once they have theirs.
  void ExchangeState(StateStream& stream);

  // Scores mean something else from here on.
  void ScoresChanged() { threshold_.Thaw(); }

  uint32_t window_tokens() const { return controller_.window_tokens(); }
  double pattern_change() const {
    return parts_.detector == nullptr ? 0 : parts_.detector->change();
  }
  uint64_t n_evicted_pages() const { return n_evicted_pages_; }

  // attention and score of every page of a lane; the rest is left empty.
  std::vector<PageExplanation> Explain(uint32_t lane, uint32_t n_tokens) const;

 private:
  Evictor(const Evictor&) = default;

  // What is planned for a lane: SlotMoves, whose pages past those that its
  // slots fill leave. (Where whole pages leave no slot moves.)
  struct LanePlan {
    uint32_t n_pages = 0;
    uint32_t n_slots = 0;
    std::array<uint32_t, kRepackedPerFreed * kMaxMovesPerTurn> pages;
    std::array<uint32_t,
               (kRepackedPerFreed - 1) * kMaxMovesPerTurn * kPageTokens>
        slots;

    void Set(const SlotMoves& moves);
    void ExchangeState(StateStream& stream);
    SlotMoves moves() const {
      return {.pages = {pages.data(), n_pages},
              .slots = {slots.data(), n_slots}};
    }
  };

  // Whether the moves are some that could have been planned for the lane.
  bool AreMovesOf(uint32_t lane, const SlotMoves& moves) const;
  bool IsDense(uint32_t lane) const { return lane < plan_.n_dense_lanes; }
  bool EvictsNothing(uint32_t n_tokens) const;
  // Pages that the lanes which may evict may hold when the dense ones hold the
  // whole text.
  uint32_t SparseCapacity() const {
    return plan_.capacity_pages - plan_.n_dense_lanes * plan_.text_pages;
  }
  void SetTargets(uint32_t n_tokens);
  // Pages that the lanes which may evict hold now.
  uint32_t SparsePages(uint32_t n_tokens) const;
  // Pages `lane` may keep before every lane opens `pages_to_open` new ones.
  uint32_t PagesToKeep(uint32_t lane, uint32_t pages_to_open) const;
  // Chooses how to free up to max_moves pages; the result lies in the scratch.
  SlotMoves Choose(uint32_t lane, uint32_t n_tokens, uint32_t pages_to_keep,
                   uint32_t max_moves, PlanScratch& scratch);
  // The same number of pages by repacking.
  SlotMoves Repack(uint32_t lane, uint32_t n_leave, PlanScratch& scratch) const;
  void Evict(uint32_t lane, const SlotMoves& moves);
  // kScore: gives every lane as many pages as it has of the highest scores of
  // all lanes.
  void LevelLanes(uint32_t n_tokens, PlanScratch& scratch);
  // Marks the protected pages of a lane and scores its slots and pages, in the
  // scratch.
  void ScoreLane(uint32_t lane, uint32_t n_tokens, PlanScratch& scratch) const;
  // Lets lanes evict down to what they may keep before each opens so many.
  void EvictDownTo(uint32_t n_tokens, uint32_t pages_to_open,
                   PlanScratch& scratch);
  bool HasRoom(uint32_t pages_to_open) const;
  // The lane with the most pages of those that have pages to give; n_lanes when
  // there is none.
  uint32_t FullestLane() const;

  const KvShape shape_;
  const CacheOptions options_;
  const std::vector<PositionRange> pinned_;
  const ProtectedEnds ends_;
  BudgetPlan plan_;
  const uint32_t n_sparse_;  // lanes that may evict
  const bool has_window_;
  uint32_t min_window_pages_;
  Parts parts_;
  WindowController controller_;
  ScoreThreshold threshold_;
  std::vector<LanePlan> plans_;        // [n_lanes]
  std::vector<uint8_t> is_exhausted_;  // [n_lanes], within MakeRoom
  // What the spread shared out last, and whether more than that is in use.
  uint32_t target_total_ = 0;
  bool under_pressure_ = false;
  uint64_t n_evicted_pages_ = 0;
  // LevelLanes: the scores of all slots that may leave, and where each lane's
  // end.
  std::vector<float> level_scores_, level_sorted_;
  std::vector<size_t> level_ends_;
  std::vector<float> wanted_pages_;
};

}  // namespace lkv
