#include "eval/context_reading.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "eval/forced_run.h"
#include "eval/full_cache.h"
#include "options/policy_text.h"
#include "policy/repeat_policy.h"

namespace lkv {
namespace {

// While it is set, policies see every query of a prompt.
class WatchesAllQueries final : public AttentionObserver {
 public:
  void OnAttention(const AttentionSample&) override {}
  bool WatchesAll() const override { return true; }
};

// A sequence that has read the context.
Result<std::unique_ptr<Sequence>> Read(const ContextToRead& context,
                                       const SequenceOptions& options,
                                       Engine& engine,
                                       const std::function<bool()>& cancelled) {
  const ForcedPart part{.prefill = context.tokens, .decode = {}};
  WatchesAllQueries watches_all;
  const bool sees_all = context.seen == SeenQueries::kAll;
  if (sees_all) engine.SetObserver(&watches_all);
  Result<std::unique_ptr<Sequence>> sequence =
      StartAndRunForced(engine, {&part, 1}, options, {}, {}, cancelled);
  if (sees_all) engine.SetObserver(nullptr);
  return sequence;
}

// A share in tokens: a cache raises a share that is too small, but refuses too
// few tokens, and a figure may not stand beside a share that was not kept.
Budget InTokens(const Budget& budget, const ContextToRead& context) {
  if (budget.kind != Budget::Kind::kShare) return budget;
  const bool of_window = context.scope == BudgetScope::kWindow;
  const uint64_t n_shared =
      context.tokens.size() + (of_window ? context.n_new : 0);
  const uint64_t n_more = of_window ? 0 : context.n_new;
  return {.kind = Budget::Kind::kTokens,
          .amount = n_more + static_cast<uint64_t>(
                                 budget.share * static_cast<double>(n_shared))};
}

Status ReadWholeThenCut(Engine& engine, const ContextToRead& context,
                        const ReadingPolicy& policy, SequenceOptions options,
                        std::span<const Budget> budgets, const OnContext& go_on,
                        const std::function<bool()>& cancelled) {
  const uint32_t n_context = options.prompt_tokens;
  options.cache.budget = Budget();
  const bool rereads = policy.cache.policy == PolicyName::kRepeat;
  const auto scores = std::make_shared<RereadScores>(
      rereads ? engine.architecture().kv_shape().n_lanes() : 0, n_context);
  if (rereads) {
    options.max_tokens =
        n_context + std::max(n_context, options.max_new_tokens);
    options.make_policy = [&](const PolicyCapacity& capacity) {
      return std::make_unique<RepeatPolicy>(scores, capacity);
    };
  }
  Result<std::unique_ptr<Sequence>> whole =
      Read(context, options, engine, cancelled);
  if (!whole.ok()) return whole.status();
  if (rereads) {
    Result<std::unique_ptr<Sequence>> fork = engine.Fork(**whole);
    if (!fork.ok()) return fork.status();
    Status s = engine.Reread(**fork, context.tokens, *scores, cancelled);
    if (!s.ok()) return s;
  }
  // What a budget of the context leaves room for, so that nothing else leaves.
  const uint32_t room_tokens =
      context.scope == BudgetScope::kContext ? context.n_new : 0;
  for (size_t b = 0; b < budgets.size(); ++b) {
    Result<std::unique_ptr<Sequence>> fork = engine.Fork(**whole);
    if (!fork.ok()) return fork.status();
    if (Status s = (*fork)->ShrinkBudget(budgets[b], room_tokens); !s.ok()) {
      return s;
    }
    if (Status s = go_on(b, **fork); !s.ok()) return s;
  }
  return {};
}

}  // namespace

ReadingPolicy ReadingPolicyOf(const CacheOptions& cache,
                              PromptReading reading) {
  ReadingPolicy policy{.cache = cache, .reading = reading};
  policy.cache.reading = PromptReading::kWithinBudget;
  if (cache.policy == PolicyName::kFull) {
    policy.reading = PromptReading::kWithinBudget;
  }
  return policy;
}

Result<std::vector<ReadingPolicy>> ReadingPoliciesOf(
    std::span<const std::string> names, const CacheOptions& cache,
    PromptReading reading) {
  std::vector<ReadingPolicy> policies;
  for (const std::string& name : names) {
    const Result<PolicyName> policy = ParsePolicy(name);
    if (!policy.ok()) return policy.status();
    CacheOptions named = cache;
    named.policy = *policy;
    if (named.policy == PolicyName::kRepeat &&
        reading == PromptReading::kWithinBudget) {
      return InvalidArgument(
          "policy: repeat needs the whole context; read it whole");
    }
    policies.push_back(ReadingPolicyOf(named, reading));
  }
  return policies;
}

ReadingPolicy KeepingAll(const CacheOptions& cache) {
  return ReadingPolicyOf(FullCacheOf(cache), PromptReading::kWithinBudget);
}

Status ReadWithinBudgets(Engine& engine, const ContextToRead& context,
                         const ReadingPolicy& policy,
                         std::span<const Budget> asked, const OnContext& go_on,
                         const std::function<bool()>& cancelled) {
  std::vector<Budget> budgets;
  for (const Budget& budget : asked) {
    budgets.push_back(context.raises_shares ? budget
                                            : InTokens(budget, context));
  }
  SequenceOptions options;
  options.cache = policy.cache;
  options.prompt_tokens = static_cast<uint32_t>(context.tokens.size());
  options.max_new_tokens = context.n_new;
  if (policy.reading == PromptReading::kWhole) {
    return ReadWholeThenCut(engine, context, policy, options, budgets, go_on,
                            cancelled);
  }
  for (size_t b = 0; b < budgets.size(); ++b) {
    options.cache.budget = budgets[b];
    Result<std::unique_ptr<Sequence>> sequence =
        Read(context, options, engine, cancelled);
    if (!sequence.ok()) return sequence.status();
    if (Status s = go_on(b, **sequence); !s.ok()) return s;
  }
  return {};
}

}  // namespace lkv
