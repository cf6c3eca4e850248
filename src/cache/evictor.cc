#include "cache/evictor.h"

#include <algorithm>
#include <functional>
#include <string>

#include "base/check.h"
#include "policy/lane_turn.h"
#include "policy/page_worth.h"
#include "policy/protection.h"
#include "policy/repacking.h"
#include "policy/tier_planner.h"

namespace lkv {

void PlanScratch::Reserve(uint32_t n_pages) {
  if (victims.size() >= n_pages) return;
  is_protected.resize(n_pages);
  slot_attention.resize(size_t{n_pages} * kPageTokens);
  slot_score.resize(size_t{n_pages} * kPageTokens);
  attention.resize(n_pages);
  score.resize(n_pages);
  sorted.resize(n_pages);
  victims.resize(n_pages);
  slot_victims.resize(size_t{n_pages} * kPageTokens);
  pages.resize(n_pages);
  slots.resize(size_t{n_pages} * kPageTokens);
}

void Evictor::LanePlan::Set(const SlotMoves& moves) {
  n_pages = static_cast<uint32_t>(moves.pages.size());
  n_slots = static_cast<uint32_t>(moves.slots.size());
  std::copy(moves.pages.begin(), moves.pages.end(), pages.begin());
  std::copy(moves.slots.begin(), moves.slots.end(), slots.begin());
}

Evictor::Evictor(const KvShape& shape, const SequenceOptions& options,
                 const BudgetPlan& plan,
                 const WindowController::Options& window, const Parts& parts)
    : shape_(shape),
      options_(options.cache),
      pinned_(options.pinned),
      ends_(ProtectedEndsOf(options.cache)),
      plan_(plan),
      n_sparse_(shape.n_lanes() - plan.n_dense_lanes),
      has_window_(HasWindowKeys(options.cache)),
      min_window_pages_(PagesOf(window.limits.min_tokens)),
      parts_(parts),
      controller_(window),
      threshold_(options.cache.score_threshold_percentile, shape.n_lanes()),
      plans_(shape.n_lanes()),
      is_exhausted_(shape.n_lanes()) {}

bool Evictor::EvictsNothing(uint32_t n_tokens) const {
  return plan_.holds_whole_text && n_tokens <= plan_.text_tokens;
}

// Dense lanes hold the whole text.
uint32_t Evictor::SparsePages(uint32_t n_tokens) const {
  return parts_.pages->n_used() - plan_.n_dense_lanes * PagesOf(n_tokens);
}

bool Evictor::HasRoom(uint32_t pages_to_open) const {
  if (parts_.pages->n_free() / shape_.n_lanes() < pages_to_open) return false;
  for (uint32_t lane = 0; lane < shape_.n_lanes(); ++lane) {
    const PageTable& table = parts_.pages->table(lane);
    if (table.capacity() - table.n_pages() < pages_to_open) return false;
  }
  return true;
}

Status Evictor::MakeRoom(uint32_t n_tokens, uint32_t pages_to_open,
                         PlanScratch& scratch) {
  for (uint32_t lane = 0; lane < shape_.n_lanes(); ++lane) {
    const SlotMoves moves = plans_[lane].moves();
    if (!moves.slots.empty()) parts_.pages->PrefetchSlots(lane, moves.pages);
  }
  for (uint32_t lane = 0; lane < shape_.n_lanes(); ++lane) {
    LanePlan& plan = plans_[lane];
    Evict(lane, plan.moves());
    plan.Set({});
  }
  if (HasRoom(pages_to_open)) return {};
  EvictDownTo(n_tokens, pages_to_open, scratch);
  std::fill(is_exhausted_.begin(), is_exhausted_.end(), 0);
  while (!HasRoom(pages_to_open)) {
    const uint32_t lane = FullestLane();
    if (lane == shape_.n_lanes()) {
      return OutOfMemory(
          "budget: all " + std::to_string(plan_.capacity_pages) +
          " pages are in use and protected at token " +
          std::to_string(n_tokens) + ", longer than the " +
          std::to_string(plan_.text_tokens) +
          " tokens announced; raise the budget or announce more tokens");
    }
    const uint32_t keep = parts_.pages->table(lane).n_pages() - 1;
    const SlotMoves moves = Choose(lane, n_tokens, keep, 1, scratch);
    Evict(lane, moves);
    if (moves.pages.empty()) is_exhausted_[lane] = 1;
  }
  return {};
}

void Evictor::EvictDownTo(uint32_t n_tokens, uint32_t pages_to_open,
                          PlanScratch& scratch) {
  if (SpreadModeOf(options_) == LaneSpreadMode::kScore) {
    LevelLanes(n_tokens, scratch);
  }
  for (uint32_t lane = plan_.n_dense_lanes; lane < shape_.n_lanes(); ++lane) {
    const uint32_t n_pages = parts_.pages->table(lane).n_pages();
    const uint32_t keep = PagesToKeep(lane, pages_to_open);
    Evict(lane, Choose(lane, n_tokens, keep, n_pages, scratch));
  }
}

uint32_t Evictor::FullestLane() const {
  uint32_t fullest = shape_.n_lanes();
  uint32_t most = 0;
  for (uint32_t lane = plan_.n_dense_lanes; lane < shape_.n_lanes(); ++lane) {
    const uint32_t n_pages = parts_.pages->table(lane).n_pages();
    if (is_exhausted_[lane] == 0 && n_pages > most) {
      most = n_pages;
      fullest = lane;
    }
  }
  return fullest;
}

uint32_t Evictor::PagesToKeep(uint32_t lane, uint32_t pages_to_open) const {
  uint64_t target = parts_.spread->target_pages(lane);
  if (pages_to_open > 1) {
    // Targets leave room for one page per lane; a chunk needs more. Each lane
    // gives in proportion to what it has.
    const uint32_t capacity = SparseCapacity();
    const uint32_t total =
        capacity - std::min(capacity, n_sparse_ * pages_to_open);
    if (total < target_total_) target = target * total / target_total_;
  }
  const uint32_t lane_capacity = parts_.pages->table(lane).capacity();
  const uint32_t room = std::min(lane_capacity, std::max(pages_to_open, 1u));
  return std::min(static_cast<uint32_t>(target), lane_capacity - room);
}

void Evictor::ScoreLane(uint32_t lane, uint32_t n_tokens,
                        PlanScratch& scratch) const {
  const PageTable& table = parts_.pages->table(lane);
  const uint32_t n_pages = table.n_pages();
  const uint32_t n_slots = table.n_tokens();
  MarkProtectedPages(ends_, pinned_, table.first_positions(), n_slots,
                     std::span(scratch.is_protected).first(n_pages));
  ScorePages(*parts_.policy, lane, n_tokens,
             {.attention = std::span(scratch.slot_attention).first(n_slots),
              .score = std::span(scratch.slot_score).first(n_slots)},
             {.attention = std::span(scratch.attention).first(n_pages),
              .score = std::span(scratch.score).first(n_pages)});
}

void Evictor::LevelLanes(uint32_t n_tokens, PlanScratch& scratch) {
  level_scores_.clear();
  level_ends_.clear();
  wanted_pages_.clear();
  uint32_t n_protected = 0;
  for (uint32_t lane = plan_.n_dense_lanes; lane < shape_.n_lanes(); ++lane) {
    ScoreLane(lane, n_tokens, scratch);
    const uint32_t n_pages = parts_.pages->table(lane).n_pages();
    const size_t n_before = level_scores_.size();
    for (uint32_t page = 0; page < n_pages; ++page) {
      if (scratch.is_protected[page] != 0) continue;
      const auto slots = scratch.slot_score.begin() + page * kPageTokens;
      level_scores_.insert(level_scores_.end(), slots, slots + kPageTokens);
    }
    level_ends_.push_back(level_scores_.size());
    const uint32_t n_lane_protected =
        n_pages -
        static_cast<uint32_t>(level_scores_.size() - n_before) / kPageTokens;
    wanted_pages_.push_back(static_cast<float>(n_lane_protected));
    n_protected += n_lane_protected;
  }
  const size_t n_kept = size_t{kPageTokens} *
                        (target_total_ - std::min(target_total_, n_protected));
  if (n_kept >= level_scores_.size()) return;  // everything may stay
  level_sorted_ = level_scores_;
  std::nth_element(level_sorted_.begin(), level_sorted_.begin() + n_kept,
                   level_sorted_.end(), std::greater<>());
  const float threshold = level_sorted_[n_kept];
  size_t slot = 0;
  for (size_t lane = 0; lane < level_ends_.size(); ++lane) {
    size_t n_above = 0;
    for (; slot < level_ends_[lane]; ++slot) {
      n_above += level_scores_[slot] > threshold ? 1 : 0;
    }
    wanted_pages_[lane] += static_cast<float>(n_above) / kPageTokens;
  }
  parts_.spread->SpreadBy(wanted_pages_, n_tokens, target_total_);
}

SlotMoves Evictor::Choose(uint32_t lane, uint32_t n_tokens,
                          uint32_t pages_to_keep, uint32_t max_moves,
                          PlanScratch& scratch) {
  const PageTable& table = parts_.pages->table(lane);
  const uint32_t n_pages = table.n_pages();
  const EvictionRule rule =
      controller_.may_evict() ? controller_.rule() : EvictionRule::kSizeAware;
  const uint32_t n_leave = n_pages - std::min(n_pages, pages_to_keep);
  if (n_leave == 0 && rule == EvictionRule::kSizeAware) return {};

  ScoreLane(lane, n_tokens, scratch);
  const std::span is_protected(scratch.is_protected.data(), n_pages);
  const std::span attention(scratch.attention.data(), n_pages);
  const std::span score(scratch.score.data(), n_pages);
  if (rule == EvictionRule::kScoreThreshold) {
    threshold_.Freeze(lane, score, is_protected,
                      {scratch.sorted.data(), n_pages});
  }
  const uint32_t n = ChooseVictims({.is_protected = is_protected,
                                    .attention = attention,
                                    .score = score,
                                    .n_leave = n_leave,
                                    .max_moves = max_moves,
                                    .two_stage = parts_.policy->two_stage(),
                                    .rule = rule,
                                    .threshold = threshold_.value(lane),
                                    .floor_pages = min_window_pages_},
                                   {scratch.victims.data(), n_pages});
  if (n > 0 && options_.unit == EvictionUnit::kRepack) {
    return Repack(lane, n, scratch);
  }
  std::reverse_copy(scratch.victims.begin(), scratch.victims.begin() + n,
                    scratch.pages.begin());
  return {.pages = {scratch.pages.data(), n}, .slots = {}};
}

SlotMoves Evictor::Repack(uint32_t lane, uint32_t n_leave,
                          PlanScratch& scratch) const {
  const uint32_t n_pages = parts_.pages->table(lane).n_pages();
  const size_t n_slots = size_t{n_pages} * kPageTokens;
  return ChooseRepacking(
      {.is_protected = std::span(scratch.is_protected).first(n_pages),
       .page_score = std::span(scratch.score).first(n_pages),
       .slot_attention = std::span(scratch.slot_attention).first(n_slots),
       .slot_score = std::span(scratch.slot_score).first(n_slots),
       .n_leave = n_leave,
       .two_stage = parts_.policy->two_stage()},
      {.pages = scratch.pages,
       .slots = scratch.slots,
       .slot_victims = scratch.slot_victims});
}

void Evictor::Evict(uint32_t lane, const SlotMoves& moves) {
  if (!moves.slots.empty()) {
    parts_.pages->MoveSlots(lane, moves.pages, moves.slots);
    parts_.policy->MoveSlots(lane, moves);
  }
  // From the last on, so that no removal renumbers a page still to be removed.
  const size_t n_filled = moves.slots.size() / kPageTokens;
  for (size_t i = moves.pages.size(); i > n_filled; --i) {
    parts_.pages->Remove(lane, moves.pages[i - 1]);
    parts_.evidence->RemovePage(lane, moves.pages[i - 1]);
    ++n_evicted_pages_;
  }
}

void Evictor::EvaluateLane(uint32_t lane, uint32_t n_tokens, uint32_t n_new) {
  if (parts_.detector != nullptr && HasTurn(lane, n_tokens, n_new)) {
    parts_.detector->Evaluate(lane);
  }
}

void Evictor::UpdateTargets(uint32_t n_tokens, uint32_t n_new) {
  // Without what the network adds, scores lie below a threshold that was frozen
  // with it: a lane would lose all that may leave.
  if (parts_.policy->EndStep()) ScoresChanged();
  if (parts_.detector != nullptr) parts_.detector->Update();
  controller_.Update(pattern_change(), n_tokens);
  if (n_sparse_ == 0) return;
  // Targets hold still while the lanes take their turns, so that all of them
  // plan for the same total.
  if (n_new > 1 || n_tokens % kPageTokens == 0) SetTargets(n_tokens);
  under_pressure_ = SparsePages(n_tokens) > target_total_;
}

void Evictor::SetTargets(uint32_t n_tokens) {
  uint32_t total = SparseCapacity() - std::min(SparseCapacity(), n_sparse_);
  if (has_window_) {
    const uint32_t window_pages =
        std::max(1u, controller_.window_tokens() / kPageTokens);
    total = std::min(total, n_sparse_ * (window_pages - 1));
  }
  target_total_ = std::max(total, n_sparse_ * plan_.protected_pages);
  parts_.spread->Respread(n_tokens, target_total_);
}

void Evictor::SetPlan(const BudgetPlan& plan,
                      const WindowController::Options& window,
                      uint32_t n_tokens) {
  plan_ = plan;
  min_window_pages_ = PagesOf(window.limits.min_tokens);
  controller_.SetLimits(window.limits, window.budget_tokens,
                        window.switch_tokens);
  for (LanePlan& lane_plan : plans_) lane_plan.Set({});
  if (n_sparse_ == 0) return;
  SetTargets(n_tokens);
  under_pressure_ = SparsePages(n_tokens) > target_total_;
}

void Evictor::Shrink(const BudgetPlan& plan,
                     const WindowController::Options& window, uint32_t n_tokens,
                     uint32_t room_tokens, PlanScratch& scratch) {
  SetPlan(plan, window, n_tokens);
  if (n_sparse_ == 0 || EvictsNothing(n_tokens + room_tokens)) return;
  EvictDownTo(n_tokens, 1 + SequencePages::PagesToOpen(n_tokens, room_tokens),
              scratch);
}

void Evictor::PlanLane(uint32_t lane, uint32_t n_tokens, uint32_t n_new,
                       PlanScratch& scratch) {
  if (IsDense(lane) || !HasTurn(lane, n_tokens, n_new)) return;
  if (EvictsNothing(n_tokens)) return;
  if (!under_pressure_ && controller_.rule() == EvictionRule::kSizeAware) {
    return;
  }
  plans_[lane].Set(
      Choose(lane, n_tokens, PagesToKeep(lane, 1), kMaxMovesPerTurn, scratch));
}

void Evictor::LanePlan::ExchangeState(StateStream& stream) {
  stream.ExchangeCount(n_pages, pages.size());
  stream.ExchangeCount(n_slots, slots.size());
  stream.Exchange(std::span(pages).first(n_pages));
  stream.Exchange(std::span(slots).first(n_slots));
}

bool Evictor::AreMovesOf(uint32_t lane, const SlotMoves& moves) const {
  // The last page may be open.
  const uint32_t n_full = parts_.pages->table(lane).n_tokens() / kPageTokens;
  const auto are_below = [](std::span<const uint32_t> values, uint32_t end) {
    return std::adjacent_find(values.begin(), values.end(),
                              std::greater_equal<>()) == values.end() &&
           (values.empty() || values.back() < end);
  };
  if (!moves.pages.empty() &&
      moves.pages.front() < parts_.pages->first_loose_page()) {
    return false;
  }
  if (!moves.slots.empty() && !parts_.pages->moves_slots()) return false;
  for (size_t i = 0; i < moves.slots.size(); ++i) {
    if (i / kPageTokens >= moves.pages.size()) return false;
    if (moves.target(i) > moves.slots[i]) return false;
  }
  return are_below(moves.pages, n_full) &&
         are_below(moves.slots, n_full * kPageTokens) &&
         moves.slots.size() % kPageTokens == 0 &&
         moves.slots.size() <= moves.pages.size() * kPageTokens;
}

void Evictor::ExchangeState(StateStream& stream) {
  controller_.ExchangeState(stream);
  threshold_.ExchangeState(stream);
  for (uint32_t lane = 0; lane < shape_.n_lanes(); ++lane) {
    plans_[lane].ExchangeState(stream);
    stream.Require(AreMovesOf(lane, plans_[lane].moves()));
    if (stream.is_reading() && !stream.ok()) plans_[lane].Set({});
  }
  stream.Exchange(target_total_);
  stream.Exchange(under_pressure_);
  stream.Exchange(n_evicted_pages_);
}

std::vector<PageExplanation> Evictor::Explain(uint32_t lane,
                                              uint32_t n_tokens) const {
  const PageTable& table = parts_.pages->table(lane);
  std::vector<float> attention(table.n_pages());
  std::vector<float> score(table.n_pages());
  std::vector<float> slot_attention(table.n_tokens());
  std::vector<float> slot_score(table.n_tokens());
  ScorePages(*parts_.policy, lane, n_tokens, {slot_attention, slot_score},
             {attention, score});
  std::vector<PageExplanation> pages(table.n_pages());
  for (uint32_t i = 0; i < pages.size(); ++i) {
    pages[i].attention = attention[i];
    pages[i].score = score[i];
  }
  return pages;
}

}  // namespace lkv
