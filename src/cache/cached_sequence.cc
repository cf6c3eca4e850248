#include "cache/cached_sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policy/protection.h"
#include "policy/window_limits.h"

namespace lkv {
namespace {

bool KeepsEverything(const SequenceOptions& options) {
  return !options.make_policy &&
         (!options.cache.enabled || options.cache.policy == PolicyName::kFull);
}

std::unique_ptr<EvictionPolicy> MakePolicy(const SequenceOptions& options,
                                           const PolicyCapacity& capacity,
                                           const KernelTable& kernels) {
  return options.make_policy
             ? options.make_policy(capacity)
             : MakeEvictionPolicy(options.cache, capacity, kernels,
                                  {.network = options.predictor.get()});
}

// Whether the window of a sequence can move at all; only then is the pattern
// watched.
bool WatchesPattern(const CacheOptions& options) {
  return HasWindowKeys(options) &&
         options.window_strategy != WindowStrategy::kStatic;
}

// As the paged cache works with them: what leaves a tier leaves as a page.
SequenceOptions Settled(SequenceOptions options) {
  if (KeepsEverything(options)) options.cache.tiers = false;
  if (options.cache.tiers) options.cache.unit = EvictionUnit::kPage;
  return options;
}

Status CheckTiers(const CacheOptions& options) {
  if (!options.tiers) return {};
  if (KvTypeOf(options) != KvType::kF16) {
    return InvalidArgument(
        "tiers: copies are made of f16 keys and values only; set kv_type to "
        "f16");
  }
  // No page may leave before its group is copied, which is up to 63 tokens
  // after it is full.
  constexpr uint32_t kLeastRecent = 2 * kColdGroupSlots - kPageTokens;
  if (options.recent_tokens < kLeastRecent) {
    return InvalidArgument(
        "recent_tokens: " + std::to_string(options.recent_tokens) +
        " are too few for tiers; protect at least " +
        std::to_string(kLeastRecent));
  }
  return {};
}

PageTable::Slots SlotsOf(const CacheOptions& options) {
  return options.unit == EvictionUnit::kRepack ? PageTable::Slots::kMovable
                                               : PageTable::Slots::kConsecutive;
}

CacheCost CostOf(const KvShape& shape, const SequenceOptions& options,
                 const KernelTable& kernels) {
  const CacheOptions& cache = options.cache;
  CacheCost cost{
      .type = KvTypeOf(cache),
      .page_metadata_bytes =
          PageTable::BytesPerPage(SlotsOf(cache)) + PagePool::kBytesPerPage,
      .lane_metadata_bytes = sizeof(PageTable)};
  if (cost.type == KvType::kInt8 && cache.sink_tokens > 0) {
    const uint64_t longest_tokens = std::max<uint64_t>(
        uint64_t{options.prompt_tokens} + options.max_new_tokens,
        options.max_tokens);
    cost.exact_pages = static_cast<uint32_t>(
        PagesOf(std::min<uint64_t>(cache.sink_tokens, longest_tokens)));
    cost.lane_metadata_bytes += shape.head_dim * sizeof(float);  // key offsets
  }
  if (KeepsEverything(options)) return cost;
  if (cache.tiers)
    cost.cold_group_bytes = ColdPages::GroupBytes(shape.head_dim);
  // A policy of one page says what a page costs.
  const std::unique_ptr<EvictionPolicy> policy =
      MakePolicy(options, {.n_lanes = 1, .pages_per_lane = 1}, kernels);
  cost.page_metadata_bytes += policy->bytes_per_page();
  cost.lane_metadata_bytes += LaneEvidence::BytesPerLane(shape, *policy);
  if (WatchesPattern(cache)) {
    cost.page_metadata_bytes += PatternDetector::kBytesPerPage;
  }
  return cost;
}

std::optional<PatternDetector> MakeDetector(const KvShape& shape,
                                            const CacheOptions& options,
                                            const BudgetPlan& plan) {
  if (!WatchesPattern(options)) return std::nullopt;
  return PatternDetector(
      {.metric = options.change_metric,
       .smoothing = options.change_smoothing,
       .ends = ProtectedEndsOf(options),
       .n_kv_heads = shape.n_kv_heads},
      {.n_lanes = shape.n_lanes(), .pages_per_lane = plan.pages_per_lane});
}

WindowController::Options WindowOf(const KvShape& shape,
                                   const ModelAndMachine& given,
                                   const SequenceOptions& options,
                                   const BudgetPlan& plan) {
  const CacheOptions& cache = options.cache;
  const uint32_t budget_tokens =
      plan.capacity_pages / shape.n_lanes() * kPageTokens;
  return {
      .strategy = cache.window_strategy,
      .law = cache.window_law,
      .rule = cache.eviction_rule,
      .limits = ResolveWindow(
          cache, given.max_seq_tokens,
          given.memory_bytes / shape.bytes_per_token(KvTypeOf(cache)),
          budget_tokens),
      .budget_tokens = budget_tokens,
      .change_threshold = cache.change_threshold,
      .dwell_steps = cache.dwell_steps,
      .warmup_tokens = cache.warmup_tokens,
      .switch_tokens = (options.prompt_tokens + options.max_new_tokens) / 2};
}

}  // namespace

Result<std::unique_ptr<CachedSequence>> CachedSequence::Create(
    SequenceId id, const KvShape& shape, const KernelTable& kernels,
    const ModelAndMachine& given, const SequenceOptions& asked) {
  const SequenceOptions options = Settled(asked);
  if (Status s = CheckTiers(options.cache); !s.ok()) return s;
  if (options.cache.policy == PolicyName::kRepeat && !options.make_policy) {
    return InvalidArgument(
        "policy: repeat needs somebody who reads the prompt twice; choose "
        "another");
  }
  const CacheCost cost = CostOf(shape, options, kernels);
  Result<BudgetPlan> plan = MakeBudgetPlan(shape, options, cost);
  if (!plan.ok()) return plan.status();
  Result<SequencePages> pages = SequencePages::Create(
      shape, {.type = KvTypeOf(options.cache),
              .n_exact_pages = cost.exact_pages,
              .capacity_pages = plan->capacity_pages,
              .capacity_pages_max = plan->capacity_pages_max,
              .pages_per_lane = plan->pages_per_lane,
              .slots = SlotsOf(options.cache)});
  if (!pages.ok()) return pages.status();
  std::unique_ptr<CachedSequence> sequence(new CachedSequence(
      id, shape, kernels, given, options, *plan, cost, *std::move(pages)));
  if (Status s = sequence->StartCopying(*plan); !s.ok()) return s;
  if (!KeepsEverything(options)) {
    sequence->judge_.emplace(shape, kernels, given.rotation, options, *plan,
                             WindowOf(shape, given, options, *plan),
                             sequence->pages_);
  }
  return sequence;
}

CachedSequence::CachedSequence(SequenceId id, const KvShape& shape,
                               const KernelTable& kernels,
                               const ModelAndMachine& given,
                               const SequenceOptions& options,
                               const BudgetPlan& plan, const CacheCost& cost,
                               SequencePages pages)
    : id_(id),
      shape_(shape),
      given_(given),
      options_(options),
      type_(KvTypeOf(options.cache)),
      plan_(plan),
      cost_(cost),
      pages_(std::move(pages)),
      kernels_(kernels),
      attend_share_(options.cache.attend_share),
      sampled_layer_(shape.n_layers),
      resident_bytes_max_(ResidentBytes()) {
  if (options.cache.tiers && options.cache.guard) {
    guard_.emplace(
        RecallGuard::Options{.sample_steps = options.cache.guard_sample_steps,
                             .max_gap = options.cache.max_recall_gap});
  }
}

CachedSequence::Judge::Judge(const KvShape& shape, const KernelTable& kernels,
                             const Rotation& rotation,
                             const SequenceOptions& options,
                             const BudgetPlan& plan,
                             const WindowController::Options& window,
                             SequencePages& pages)
    : policy(MakePolicy(
          options,
          {.n_lanes = shape.n_lanes(), .pages_per_lane = plan.pages_per_lane},
          kernels)),
      detector(MakeDetector(shape, options.cache, plan)),
      spread({.mode = SpreadModeOf(options.cache),
              .n_lanes = shape.n_lanes(),
              .n_dense_lanes = plan.n_dense_lanes,
              // One page short of what a lane may hold, which it opens next.
              .floor_pages =
                  std::min(plan.protected_pages, plan.pages_per_lane - 1),
              .pages_per_lane = plan.pages_per_lane - 1}),
      evidence(shape, kernels, rotation, ProtectedEndsOf(options.cache),
               Judges()),
      evictor(shape, options, plan, window, Parts(pages)) {}

CachedSequence::Judge::Judge(const Judge& other, SequencePages& pages)
    : policy(other.policy->Clone()),
      detector(other.detector),
      spread(other.spread),
      evidence(other.evidence, Judges()),
      evictor(other.evictor, Parts(pages)) {}

CachedSequence::CachedSequence(SequenceId id, const CachedSequence& other,
                               SequencePages pages,
                               std::optional<ColdPages> cold)
    : id_(id),
      shape_(other.shape_),
      given_(other.given_),
      options_(other.options_),
      type_(other.type_),
      plan_(other.plan_),
      cost_(other.cost_),
      pages_(std::move(pages)),
      kernels_(other.kernels_),
      cold_(std::move(cold)),
      guard_(other.guard_),
      attend_share_(other.attend_share_),
      sampled_layer_(other.sampled_layer_),
      n_tokens_(other.n_tokens_),
      resident_bytes_max_(other.resident_bytes_max_),
      read_bytes_last_step_(other.read_bytes_last_step_) {
  if (other.judge_.has_value()) judge_.emplace(*other.judge_, pages_);
}

Result<std::unique_ptr<CachedSequence>> CachedSequence::Fork(SequenceId id) {
  Result<SequencePages> pages = pages_.Fork();
  if (!pages.ok()) return pages.status();
  std::optional<ColdPages> cold;
  if (cold_.has_value()) {
    Result<ColdPages> shared = cold_->Fork();
    if (!shared.ok()) return shared.status();
    cold.emplace(*std::move(shared));
  }
  return std::unique_ptr<CachedSequence>(
      new CachedSequence(id, *this, *std::move(pages), std::move(cold)));
}

WindowController::Options CachedSequence::WindowNow() const {
  return WindowOf(shape_, given_, options_, plan_);
}

Status CachedSequence::StartCopying(const BudgetPlan& plan) {
  if (cold_.has_value() || plan.cold_groups_per_lane == 0) return {};
  Result<ColdPages> cold =
      ColdPages::Create({.n_lanes = shape_.n_lanes(),
                         .head_dim = shape_.head_dim,
                         .groups_per_lane = plan.cold_groups_per_lane});
  if (!cold.ok()) return cold.status();
  cold_.emplace(*std::move(cold));
  OpenGroups();
  for (uint32_t lane = 0; lane < shape_.n_lanes(); ++lane) CopyGroups(lane);
  return {};
}

void CachedSequence::UpdateGuard() {
  sampled_layer_ = shape_.n_layers;
  if (guard_->Add(recall_gap_, n_tokens_)) ApplyGuard();
}

void CachedSequence::ApplyGuard() {
  attend_share_ = guard_->Widened(options_.cache.attend_share);
  if (!judge_.has_value() ||
      !judge_->policy->AllowNetwork(!guard_->drops_network())) {
    return;
  }
  judge_->evictor.ScoresChanged();
}

void CachedSequence::OpenGroups() {
  for (uint32_t lane = 0; lane < shape_.n_lanes(); ++lane) {
    while (cold_->n_opened(lane) < GroupsDue(lane)) cold_->Open(lane);
  }
  resident_bytes_max_ = std::max(resident_bytes_max_, ResidentBytes());
}

void CachedSequence::CopyGroups(uint32_t lane) {
  const PageTable& table = pages_.table(lane);
  while (cold_->HasOpen(lane)) {
    const uint32_t first_pos = cold_->n_groups(lane) * kColdGroupSlots;
    const auto first_positions = table.first_positions();
    const auto at = std::lower_bound(first_positions.begin(),
                                     first_positions.end(), first_pos);
    CHECK(at != first_positions.end() && *at == first_pos);
    const size_t first_page = static_cast<size_t>(at - first_positions.begin());
    const ColdPages::OpenGroup to = cold_->FirstOpen(lane);
    EncodeColdArgs args{.pages = {},
                        .head_dim = shape_.head_dim,
                        .digest = to.digest,
                        .bodies = {}};
    for (uint32_t i = 0; i < kColdGroupPages; ++i) {
      args.pages[i] = table.pages()[first_page + i];
      args.bodies[i] = to.bodies[i];
    }
    kernels_.encode_cold(args);
    cold_->Fill(lane);
  }
}

Status CachedSequence::AnnounceTurn(uint32_t prompt_tokens,
                                    uint32_t max_new_tokens) {
  const uint64_t text_tokens =
      uint64_t{n_tokens_} + prompt_tokens + max_new_tokens;
  if (text_tokens <= plan_.text_tokens) return {};
  if (text_tokens > options_.max_tokens) {
    return InvalidArgument(
        "sequence: " + std::to_string(text_tokens) +
        " tokens are more than the " +
        std::to_string(std::max(options_.max_tokens, plan_.text_tokens)) +
        " it was admitted for; admit it for a longer text");
  }
  SequenceOptions options = options_;
  options.prompt_tokens = n_tokens_ + prompt_tokens;
  options.max_new_tokens = max_new_tokens;
  Result<BudgetPlan> plan = MakeBudgetPlan(shape_, options, cost_);
  if (!plan.ok()) return plan.status();
  if (Status s = StartCopying(*plan); !s.ok()) return s;
  options_ = std::move(options);
  plan_ = *plan;
  pages_.Grow(plan_.capacity_pages);
  if (judge_.has_value()) {
    judge_->evictor.SetPlan(plan_, WindowNow(), n_tokens_);
  }
  return {};
}

Status CachedSequence::ShrinkBudget(const Budget& budget, uint32_t room_tokens,
                                    PlanScratch& scratch) {
  if (!judge_.has_value()) {
    return InvalidArgument(
        "budget: policy full keeps everything; choose another policy");
  }
  SequenceOptions options = options_;
  options.cache.budget = budget;
  Result<BudgetPlan> plan = MakeBudgetPlan(shape_, options, cost_);
  if (!plan.ok()) return plan.status();
  // More bytes than a text needs whole are no more pages.
  if (plan->capacity_pages > plan_.capacity_pages) {
    return InvalidArgument("budget: " + std::to_string(plan->budget_bytes) +
                           " bytes are more than the " +
                           std::to_string(plan_.budget_bytes) +
                           " that the sequence has; shrink it");
  }
  if (Status s = StartCopying(*plan); !s.ok()) return s;
  options_ = std::move(options);
  plan_ = *plan;
  judge_->evictor.Shrink(plan_, WindowNow(), n_tokens_, room_tokens, scratch);
  pages_.Shrink(plan_.capacity_pages);
  return {};
}

SequenceStats CachedSequence::Stats() const {
  const uint64_t n_pages = pages_.n_used();
  SequenceStats stats;
  stats.n_tokens = n_tokens_;
  stats.budget_bytes = plan_.budget_bytes;
  stats.fill_bytes = plan_.fill_bytes;
  stats.resident_bytes = ResidentBytes();
  stats.resident_bytes_max = resident_bytes_max_;
  stats.shared_bytes = pages_.shared_bytes();
  // Shared pages stay in memory when this sequence has evicted them.
  const uint64_t replaced_bytes = plan_.holds_whole_text
                                      ? pages_.shared_open_bytes(n_tokens_)
                                      : stats.shared_bytes;
  stats.growth_bytes =
      plan_.fill_bytes -
      std::min(plan_.fill_bytes, stats.resident_bytes - replaced_bytes);
  stats.metadata_bytes = cost_.MetadataBytes(shape_, n_pages);
  stats.cold_bytes = ColdBytes();
  stats.full_bytes = n_tokens_ * shape_.bytes_per_token(type_) +
                     cost_.ExtraBytesForExact(shape_, PagesOf(n_tokens_));
  stats.read_bytes_last_step =
      read_bytes_last_step_ + cold_read_bytes_.load(std::memory_order_relaxed);
  stats.window_tokens = plan_.capacity_pages / shape_.n_lanes() * kPageTokens;
  if (judge_.has_value()) {
    const uint64_t n_lanes = shape_.n_lanes();
    stats.evicted_tokens =
        (judge_->evictor.n_evicted_pages() * kPageTokens + n_lanes / 2) /
        n_lanes;
    stats.window_tokens = judge_->evictor.window_tokens();
    stats.pattern_change = judge_->evictor.pattern_change();
    const ForecastCheck::Verdict* verdict = judge_->policy->forecast();
    if (verdict != nullptr) stats.forecast = *verdict;
  }
  if (cold_.has_value()) stats.guard = guard_;
  return stats;
}

uint32_t CachedSequence::ChunkTokens(uint32_t wanted) const {
  if (wanted == 0) return 0;
  uint32_t chunk = wanted;
  if (!plan_.holds_whole_text) {
    // A quarter of what a lane may hold, and no more than its protected pages
    // leave room for.
    const uint32_t mean = plan_.mean_pages(shape_.n_lanes());
    const uint32_t pages = std::max(
        1u, std::min(mean / 4, mean - std::min(mean, plan_.protected_pages)));
    chunk = std::min(chunk, pages * kPageTokens);
  }
  return chunk - n_tokens_ % chunk;
}

uint32_t CachedSequence::LanePagesFor(uint32_t n_new) const {
  const bool announced = uint64_t{n_tokens_} + n_new <= plan_.text_tokens;
  const uint32_t most = pages_.table(0).capacity();
  if (cold_.has_value()) {
    // Attention sees them all, wherever they are.
    return std::max(PagesOf(n_tokens_ + n_new), plan_.text_pages);
  }
  return announced ? std::min(most, plan_.text_pages) : most;
}

Status CachedSequence::MakeRoom(uint32_t n_new, PlanScratch& scratch) {
  const uint32_t pages_to_open = SequencePages::PagesToOpen(n_tokens_, n_new);
  if (judge_.has_value()) {
    return judge_->evictor.MakeRoom(n_tokens_, pages_to_open, scratch);
  }
  if (pages_.n_free() / shape_.n_lanes() < pages_to_open) {
    return OutOfMemory(
        "sequence: " + std::to_string(n_tokens_ + n_new) +
        " tokens are more than the " +
        std::to_string(options_.prompt_tokens + options_.max_new_tokens) +
        " announced, and policy full keeps everything; announce more tokens");
  }
  return {};
}

void CachedSequence::OpenPages(uint32_t n_new) {
  pages_.Compact();
  pages_.Extend(n_tokens_, n_new);
  read_bytes_last_step_ = pages_.payload_bytes();
  cold_read_bytes_.store(0, std::memory_order_relaxed);
  // A prompt reads everything.
  sampled_layer_ = guard_.has_value() && cold_.has_value() && n_new == 1
                       ? guard_->LayerToSample(n_tokens_, shape_.n_layers)
                       : shape_.n_layers;
  const uint64_t resident_bytes = ResidentBytes();
  CHECK(resident_bytes <= plan_.budget_bytes);
  resident_bytes_max_ = std::max(resident_bytes_max_, resident_bytes);
}

void CachedSequence::EvaluateLane(uint32_t lane, uint32_t n_new,
                                  PlanScratch& scratch) {
  if (!judge_.has_value()) return;
  judge_->evictor.EvaluateLane(lane, n_tokens_ + n_new, n_new);
  if (lane < plan_.n_dense_lanes) return;  // nothing leaves it
  const uint32_t n_slots = pages_.table(lane).n_tokens();
  judge_->evidence.TellExpectation(
      lane, n_tokens_ + n_new, n_new, pages_,
      std::span(scratch.slot_attention).first(n_slots),
      std::span(scratch.slot_score).first(n_slots));
}

void CachedSequence::Advance(uint32_t n_new) {
  n_tokens_ += n_new;
  if (cold_.has_value()) OpenGroups();
  if (sampled_layer_ < shape_.n_layers) UpdateGuard();
  if (judge_.has_value()) judge_->evictor.UpdateTargets(n_tokens_, n_new);
}

void CachedSequence::PlanLane(uint32_t lane, uint32_t n_new,
                              PlanScratch& scratch) {
  if (cold_.has_value()) CopyGroups(lane);
  if (!judge_.has_value()) return;
  judge_->evictor.PlanLane(lane, n_tokens_, n_new, scratch);
}

std::vector<PageExplanation> CachedSequence::Explain(uint32_t layer,
                                                     uint32_t kv_head) const {
  const uint32_t lane = shape_.LaneOf(layer, kv_head);
  const PageTable& table = pages_.table(lane);
  std::vector<PageExplanation> pages(table.n_pages());
  if (judge_.has_value()) pages = judge_->evictor.Explain(lane, n_tokens_);
  const CacheOptions& cache = options_.cache;
  const uint32_t recent_slot =
      table.n_tokens() - std::min(table.n_tokens(), cache.recent_tokens);
  for (uint32_t i = 0; i < pages.size(); ++i) {
    PageExplanation& page = pages[i];
    const uint32_t n_tokens =
        std::min(kPageTokens, table.n_tokens() - i * kPageTokens);
    for (uint32_t slot = 0; slot < n_tokens; ++slot) {
      page.positions.push_back(table.PositionOf(i * kPageTokens + slot));
    }
    const uint32_t first_pos = table.first_positions()[i];
    const bool is_pinned = std::any_of(
        options_.pinned.begin(), options_.pinned.end(),
        [&](PositionRange range) {
          return range.begin < first_pos + kPageTokens && first_pos < range.end;
        });
    if (lane < plan_.n_dense_lanes) {
      page.protection = PageProtection::kDenseLayer;
    } else if (first_pos < cache.sink_tokens) {
      page.protection = PageProtection::kSink;
    } else if (is_pinned) {
      page.protection = PageProtection::kPinned;
    } else if ((i + 1) * kPageTokens > recent_slot) {
      page.protection = PageProtection::kRecent;
    }
  }
  return pages;
}

}  // namespace lkv
