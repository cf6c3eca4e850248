#include "cache/budget_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"

namespace lkv {
namespace {

// A lane may grow to this many times the mean of all lanes. Its metadata
// arrays are that long, so every step up costs about 3 % of the payload in
// addresses.
constexpr uint32_t kLanePagesOverMean = 2;

// What no lane may evict.
struct Protection {
  uint64_t tokens;
  uint64_t pages;  // most pages these tokens can lie in, open page included
};

Protection ProtectionOf(const SequenceOptions& options) {
  const uint32_t sinks = options.cache.sink_tokens;
  const uint32_t recent = options.cache.recent_tokens;
  // The newest tokens end anywhere in a page. With none of them protected the
  // open page is.
  Protection protection{
      uint64_t{sinks} + recent,
      PagesOf(sinks) +
          std::max<uint64_t>(1, PagesOf(uint64_t{recent} + kPageTokens - 1))};
  uint64_t counted_pos = sinks;
  uint64_t counted_page = PagesOf(sinks);
  std::vector<PositionRange> pinned = options.pinned;
  std::sort(pinned.begin(), pinned.end(),
            [](PositionRange a, PositionRange b) { return a.begin < b.begin; });
  for (const PositionRange& range : pinned) {
    const uint64_t begin = std::max<uint64_t>(range.begin, counted_pos);
    if (begin >= range.end) continue;
    protection.tokens += range.end - begin;
    counted_pos = range.end;
    const uint64_t begin_page =
        std::max<uint64_t>(begin / kPageTokens, counted_page);
    const uint64_t end_page = PagesOf(range.end);
    if (begin_page >= end_page) continue;
    protection.pages += end_page - begin_page;
    counted_page = end_page;
  }
  return protection;
}

// What a sequence would take whole, and what it takes at least.
struct Needs {
  uint64_t text_tokens;
  uint64_t text_pages;  // of one lane
  uint64_t whole_pages;
  uint64_t whole_bytes;
  uint64_t smallest_pages;
  uint64_t smallest_bytes;
  uint64_t n_dense_lanes;
  uint64_t cold_bytes;  // coarse copies of the text, unless it is held whole
  Protection protection;
};

// Whether a text is copied although the budget holds it whole: a longer one,
// which it may grow to, is. Copies would otherwise begin when pages that are in
// use had to make room for them, and a sequence's capacity never falls.
enum class Copies { kIfNeeded, kAlways };

Needs NeedsOf(const KvShape& shape, const SequenceOptions& options,
              uint64_t text_tokens, Copies copies, const CacheCost& cost) {
  Needs needs;
  const uint64_t n_lanes = shape.n_lanes();
  needs.text_tokens = text_tokens;
  needs.text_pages = PagesOf(needs.text_tokens);
  needs.whole_pages = n_lanes * needs.text_pages;
  needs.whole_bytes = cost.TotalBytes(shape, needs.whole_pages);

  needs.protection = ProtectionOf(options);
  needs.n_dense_lanes = uint64_t{options.cache.dense_layers} * shape.n_kv_heads;
  const uint64_t n_sparse = n_lanes - needs.n_dense_lanes;
  // A share grows with the text. What is fixed pays for the longest one from
  // the start, or pages in use would have to make room for copies.
  const uint64_t copied_tokens =
      options.cache.budget.kind == Budget::Kind::kShare
          ? text_tokens
          : std::max<uint64_t>(text_tokens, options.max_tokens);
  needs.cold_bytes =
      n_lanes * (copied_tokens / kColdGroupSlots) * cost.cold_group_bytes;
  const bool has_tiers = cost.cold_group_bytes > 0;
  const uint64_t lane_pages =
      std::max(needs.protection.pages + 1,
               has_tiers ? 0 : PagesOf(2 * needs.protection.tokens));
  const uint64_t protected_tokens = needs.n_dense_lanes * needs.text_tokens +
                                    n_sparse * needs.protection.tokens;
  needs.smallest_pages = std::min(
      needs.whole_pages,
      std::max(needs.n_dense_lanes * needs.text_pages + n_sparse * lane_pages,
               has_tiers ? 0 : PagesOf(2 * protected_tokens)));
  needs.smallest_bytes =
      cost.TotalBytes(shape, needs.smallest_pages) + needs.cold_bytes;
  if (copies == Copies::kIfNeeded) {
    needs.smallest_bytes = std::min(needs.whole_bytes, needs.smallest_bytes);
  }
  return needs;
}

// What the user allows, in bytes, before it is held against the needs.
uint64_t AllowedBytes(const CacheOptions& options, uint64_t bytes_per_token,
                      const Needs& needs) {
  const Budget& budget = options.budget;
  if (!options.enabled) return needs.whole_bytes;
  switch (budget.kind) {
    case Budget::Kind::kFull:
      break;
    case Budget::Kind::kShare:
      if (budget.share >= 1) break;
      return static_cast<uint64_t>(
          budget.share *
          static_cast<double>(needs.text_tokens * bytes_per_token));
    case Budget::Kind::kTokens:
      return std::min(budget.amount,
                      std::numeric_limits<uint64_t>::max() / bytes_per_token) *
             bytes_per_token;
    case Budget::Kind::kBytes:
      return budget.amount;
  }
  return needs.whole_bytes;
}

Status RefuseSmall(const SequenceOptions& options, uint64_t bytes_per_token,
                   uint64_t allowed_bytes, const Needs& needs) {
  const CacheOptions& cache = options.cache;
  const uint64_t smallest_tokens =
      (needs.smallest_bytes + bytes_per_token - 1) / bytes_per_token;
  std::string problem = " bytes cannot ";
  std::string remedy;
  if (needs.smallest_pages == needs.whole_pages) {
    problem += "hold a text of " + std::to_string(needs.text_tokens) +
               " tokens, which is too short to leave a choice";
  } else {
    if (needs.cold_bytes > 0) {
      problem += "pay for copies of the text (tiers, " +
                 std::to_string(needs.cold_bytes) + " bytes), ";
    }
    problem += "protect " + std::to_string(cache.sink_tokens) + " sink and " +
               std::to_string(cache.recent_tokens) + " recent tokens";
    if (!options.pinned.empty()) problem += ", pinned text";
    if (cache.dense_layers > 0) {
      problem += ", " + std::to_string(cache.dense_layers) + " dense layers";
      remedy = "lower dense_layers or ";
    }
    problem += " and leave a choice";
  }
  return InvalidArgument("budget: " + std::to_string(allowed_bytes) + problem +
                         "; " + remedy + "use at least " +
                         std::to_string(needs.smallest_bytes) + "B (" +
                         std::to_string(smallest_tokens) + " tokens)");
}

Status CheckOptions(const KvShape& shape, const SequenceOptions& options) {
  const CacheOptions& cache = options.cache;
  if (cache.dense_layers > shape.n_layers) {
    return InvalidArgument(
        "dense_layers: " + std::to_string(cache.dense_layers) +
        " is more than the " + std::to_string(shape.n_layers) +
        " layers of the model; lower it");
  }
  if (cache.budget.kind == Budget::Kind::kShare &&
      !(cache.budget.share > 0 && std::isfinite(cache.budget.share))) {
    return InvalidArgument(
        "budget: a share must be above 0 %; use for example 25%");
  }
  return {};
}

enum class Length { kShorter, kLongest };

// The plan for one length of the text, the longest or a shorter one.
Result<BudgetPlan> PlanFor(const KvShape& shape, const SequenceOptions& options,
                           uint64_t text_tokens, Length length, Copies copies,
                           const CacheCost& cost) {
  const CacheOptions& cache = options.cache;
  const Needs needs = NeedsOf(shape, options, text_tokens, copies, cost);
  // Page numbers are 32 bits wide; a machine runs out of memory before.
  if (needs.whole_pages > std::numeric_limits<uint32_t>::max() / 2) {
    return OutOfMemory("sequence of " + std::to_string(needs.text_tokens) +
                       " tokens: needs " + std::to_string(needs.whole_bytes) +
                       " bytes of KV; shorten it");
  }
  const uint64_t bytes_per_token = shape.bytes_per_token(cost.type);
  uint64_t budget_bytes = AllowedBytes(cache, bytes_per_token, needs);
  if (cache.policy == PolicyName::kFull && !options.make_policy &&
      budget_bytes < needs.whole_bytes) {
    return InvalidArgument(
        "budget: policy full keeps everything and needs " +
        std::to_string(needs.whole_bytes) + " bytes for " +
        std::to_string(needs.text_tokens) + " tokens, not " +
        std::to_string(budget_bytes) + "; raise the budget to " +
        std::to_string(needs.whole_bytes) + "B or choose another policy");
  }
  if (budget_bytes < needs.smallest_bytes) {
    const bool raise = cache.budget.kind == Budget::Kind::kShare &&
                       (needs.n_dense_lanes == 0 || length == Length::kShorter);
    if (!raise) {
      return RefuseSmall(options, bytes_per_token, budget_bytes, needs);
    }
    budget_bytes = needs.smallest_bytes;
  }

  BudgetPlan plan;
  plan.budget_bytes = budget_bytes;
  plan.fill_bytes = std::min(budget_bytes, needs.whole_bytes);
  plan.holds_whole_text =
      copies == Copies::kIfNeeded && budget_bytes >= needs.whole_bytes;
  const uint64_t beside_pages = cost.TotalBytes(shape, 0) +
                                (plan.holds_whole_text ? 0 : needs.cold_bytes);
  plan.capacity_pages = static_cast<uint32_t>(
      std::min(needs.whole_pages,
               (budget_bytes - beside_pages) /
                   (shape.page_bytes(cost.type) + cost.page_metadata_bytes)));
  plan.capacity_pages_max = plan.capacity_pages;
  if (copies == Copies::kAlways) {
    plan.fill_bytes =
        std::min(budget_bytes, cost.TotalBytes(shape, plan.capacity_pages) +
                                   needs.cold_bytes);
  }
  if (!plan.holds_whole_text && cost.cold_group_bytes > 0) {
    plan.cold_groups_per_lane = static_cast<uint32_t>(
        std::max<uint64_t>(text_tokens, options.max_tokens) / kColdGroupSlots);
  }
  plan.protected_pages = static_cast<uint32_t>(needs.protection.pages);
  plan.n_dense_lanes = static_cast<uint32_t>(needs.n_dense_lanes);
  plan.text_tokens = static_cast<uint32_t>(needs.text_tokens);
  plan.text_pages = static_cast<uint32_t>(needs.text_pages);
  plan.pages_per_lane = plan.text_pages;
  if (!plan.holds_whole_text && plan.n_dense_lanes == 0) {
    plan.pages_per_lane = std::min(
        plan.text_pages, kLanePagesOverMean * plan.mean_pages(shape.n_lanes()));
  }
  return plan;
}

}  // namespace

uint32_t BudgetPlan::mean_pages(uint32_t n_lanes) const {
  const uint64_t dense_pages = uint64_t{n_dense_lanes} * text_pages;
  if (n_lanes == n_dense_lanes || dense_pages > capacity_pages) return 0;
  return static_cast<uint32_t>((capacity_pages - dense_pages) /
                               (n_lanes - n_dense_lanes));
}

Result<BudgetPlan> MakeBudgetPlan(const KvShape& shape,
                                  const SequenceOptions& options,
                                  const CacheCost& cost) {
  if (Status s = CheckOptions(shape, options); !s.ok()) return s;
  const uint64_t text_tokens = std::max<uint64_t>(
      1, uint64_t{options.prompt_tokens} + options.max_new_tokens);
  const uint64_t longest_tokens =
      std::max<uint64_t>(text_tokens, options.max_tokens);
  Result<BudgetPlan> longest =
      PlanFor(shape, options, longest_tokens, Length::kLongest,
              Copies::kIfNeeded, cost);
  if (!longest.ok() || text_tokens == longest_tokens) return longest;
  Result<BudgetPlan> plan = PlanFor(
      shape, options, text_tokens, Length::kShorter,
      longest->cold_groups_per_lane > 0 ? Copies::kAlways : Copies::kIfNeeded,
      cost);
  if (!plan.ok()) return plan.status();
  plan->capacity_pages_max = longest->capacity_pages;
  plan->pages_per_lane = longest->pages_per_lane;
  return plan;
}

}  // namespace lkv
