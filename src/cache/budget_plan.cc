#include "cache/budget_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"

namespace lkv {
namespace {

// A lane may grow to this many times the mean of all lanes. Its metadata
// arrays are that long, so every step up costs about 3 % of the payload in
// addresses.
constexpr uint32_t kLanePagesOverMean = 2;

uint64_t PagesOf(uint64_t n_tokens) {
  return (n_tokens + kPageTokens - 1) / kPageTokens;
}

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

std::string Describe(const SequenceOptions& options, uint64_t n_tokens) {
  std::string text = std::to_string(n_tokens) + " tokens (" +
                     std::to_string(options.cache.sink_tokens) + " sink, " +
                     std::to_string(options.cache.recent_tokens) + " recent";
  if (!options.pinned.empty()) text += ", pinned text";
  if (options.cache.dense_layers > 0) {
    text += ", " + std::to_string(options.cache.dense_layers) + " dense layers";
  }
  return text + ")";
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

}  // namespace

uint64_t CostOfPages(const KvShape& shape, const MetadataCost& cost,
                     uint64_t n_pages) {
  return n_pages * (shape.page_bytes() + cost.per_page) +
         uint64_t{shape.n_lanes()} * cost.per_lane;
}

uint32_t BudgetPlan::mean_pages(uint32_t n_lanes) const {
  const uint64_t dense_pages = uint64_t{n_dense_lanes} * text_pages;
  if (n_lanes == n_dense_lanes || dense_pages > capacity_pages) return 0;
  return static_cast<uint32_t>((capacity_pages - dense_pages) /
                               (n_lanes - n_dense_lanes));
}

Result<BudgetPlan> MakeBudgetPlan(const KvShape& shape,
                                  const SequenceOptions& options,
                                  const MetadataCost& cost) {
  if (Status s = CheckOptions(shape, options); !s.ok()) return s;
  const CacheOptions& cache = options.cache;
  const uint64_t n_lanes = shape.n_lanes();
  const uint64_t text_tokens = std::max<uint64_t>(
      1, uint64_t{options.prompt_tokens} + options.max_new_tokens);
  const uint64_t text_pages = PagesOf(text_tokens);
  const uint64_t whole_pages = n_lanes * text_pages;
  const uint64_t whole_bytes = CostOfPages(shape, cost, whole_pages);
  // Page numbers are 32 bits wide; a machine runs out of memory before.
  if (whole_pages > std::numeric_limits<uint32_t>::max() / 2) {
    return OutOfMemory("sequence of " + std::to_string(text_tokens) +
                       " tokens: needs " + std::to_string(whole_bytes) +
                       " bytes of KV; shorten it");
  }

  const Protection protection = ProtectionOf(options);
  const uint64_t n_dense = uint64_t{cache.dense_layers} * shape.n_kv_heads;
  const uint64_t n_sparse = n_lanes - n_dense;
  const uint64_t lane_pages =
      std::max(protection.pages + 1, PagesOf(2 * protection.tokens));
  const uint64_t protected_tokens =
      n_dense * text_tokens + n_sparse * protection.tokens;
  const uint64_t smallest_pages = std::min(
      whole_pages, std::max(n_dense * text_pages + n_sparse * lane_pages,
                            PagesOf(2 * protected_tokens)));
  const uint64_t smallest_bytes = CostOfPages(shape, cost, smallest_pages);
  const uint64_t bytes_per_token = shape.bytes_per_token();

  const bool full =
      !cache.enabled || cache.budget.kind == Budget::Kind::kFull ||
      (cache.budget.kind == Budget::Kind::kShare && cache.budget.share >= 1);
  uint64_t budget_bytes = whole_bytes;
  if (!full && cache.budget.kind == Budget::Kind::kShare) {
    budget_bytes = static_cast<uint64_t>(
        cache.budget.share *
        static_cast<double>(text_tokens * bytes_per_token));
    if (budget_bytes < smallest_bytes && n_dense > 0) {
      return InvalidArgument(
          "budget: protected parts take more than half of " +
          std::to_string(budget_bytes) +
          " bytes; lower dense_layers or raise the share to " +
          std::to_string(
              100 * smallest_bytes / (text_tokens * bytes_per_token) + 1) +
          "%");
    }
    budget_bytes = std::max(budget_bytes, smallest_bytes);
  } else if (!full && cache.budget.kind == Budget::Kind::kTokens) {
    budget_bytes =
        std::min(cache.budget.amount,
                 std::numeric_limits<uint64_t>::max() / bytes_per_token) *
        bytes_per_token;
  } else if (!full) {
    budget_bytes = cache.budget.amount;
  }
  if (budget_bytes < smallest_bytes) {
    const uint64_t smallest_tokens =
        (smallest_bytes + bytes_per_token - 1) / bytes_per_token;
    return InvalidArgument(
        "budget: " + std::to_string(budget_bytes) +
        " bytes are too few to protect " +
        Describe(options, protection.tokens) + "; use at least " +
        std::to_string(smallest_tokens) + " tokens = " +
        std::to_string(smallest_tokens * bytes_per_token) + " bytes");
  }

  BudgetPlan plan;
  plan.budget_bytes = budget_bytes;
  plan.capacity_pages = static_cast<uint32_t>(
      std::min(whole_pages, (budget_bytes - CostOfPages(shape, cost, 0)) /
                                (shape.page_bytes() + cost.per_page)));
  plan.holds_whole_text = plan.capacity_pages == whole_pages;
  plan.protected_pages = static_cast<uint32_t>(protection.pages);
  plan.n_dense_lanes = static_cast<uint32_t>(n_dense);
  plan.text_pages = static_cast<uint32_t>(text_pages);
  plan.pages_per_lane = plan.text_pages;
  if (!plan.holds_whole_text && n_dense == 0) {
    plan.pages_per_lane = std::min(
        plan.text_pages,
        kLanePagesOverMean * plan.mean_pages(static_cast<uint32_t>(n_lanes)));
  }
  if (cache.enabled && cache.policy == PolicyName::kFull &&
      !plan.holds_whole_text) {
    return InvalidArgument("budget: policy full keeps everything and needs " +
                           std::to_string(whole_bytes) + " bytes for " +
                           std::to_string(text_tokens) + " tokens, not " +
                           std::to_string(budget_bytes) +
                           "; raise the budget or choose another policy");
  }
  return plan;
}

}  // namespace lkv
