#include "eval/context_reading.h"

#include <memory>
#include <string_view>
#include <utility>

#include "eval/forced_run.h"
#include "eval/reread.h"
#include "options/option_table.h"
#include "policy/repeat_policy.h"

namespace lkv {
namespace {

// A policy that has the context read twice (policy/repeat_policy.h).
constexpr std::string_view kRepeat = "repeat";

// A sequence that has read the context.
Result<std::unique_ptr<Sequence>> Read(const ContextToRead& context,
                                       const SequenceOptions& options,
                                       Engine& engine,
                                       const std::function<bool()>& cancelled) {
  const ForcedPart part{.prefill = context.tokens, .decode = {}};
  return StartAndRunForced(engine, {&part, 1}, options, {}, {}, cancelled);
}

// In tokens of the context and what follows it, whatever was announced for a
// second reading.
Budget InTokens(const Budget& budget, uint32_t n_tokens) {
  if (budget.kind != Budget::Kind::kShare) return budget;
  return {.kind = Budget::Kind::kTokens,
          .amount = static_cast<uint64_t>(budget.share * n_tokens)};
}

Status ReadWholeThenCut(Engine& engine, const ContextToRead& context,
                        const ReadingPolicy& policy, SequenceOptions options,
                        std::span<const Budget> budgets, const OnContext& go_on,
                        const std::function<bool()>& cancelled) {
  const uint32_t n_context = options.prompt_tokens;
  options.cache.budget = Budget();
  RereadScores scores(
      policy.rereads ? engine.architecture().kv_shape().n_lanes() : 0,
      n_context);
  if (policy.rereads) {
    options.prompt_tokens += n_context;
    options.make_policy = [&](const PolicyCapacity& capacity) {
      return std::make_unique<RepeatPolicy>(scores, capacity);
    };
  }
  Result<std::unique_ptr<Sequence>> whole =
      Read(context, options, engine, cancelled);
  if (!whole.ok()) return whole.status();
  if (policy.rereads) {
    Result<std::unique_ptr<Sequence>> fork = engine.Fork(**whole);
    if (!fork.ok()) return fork.status();
    Status s = Reread(engine, **fork, context.tokens, scores, cancelled);
    if (!s.ok()) return s;
  }
  for (size_t b = 0; b < budgets.size(); ++b) {
    Result<std::unique_ptr<Sequence>> fork = engine.Fork(**whole);
    if (!fork.ok()) return fork.status();
    if (Status s = (*fork)->ShrinkBudget(
            InTokens(budgets[b], n_context + context.n_new));
        !s.ok()) {
      return s;
    }
    if (Status s = go_on(b, **fork); !s.ok()) return s;
  }
  return {};
}

}  // namespace

Result<std::vector<ReadingPolicy>> ReadingPoliciesOf(
    std::span<const std::string> names, const CacheOptions& cache,
    ContextReading reading) {
  std::vector<ReadingPolicy> policies;
  for (const std::string& name : names) {
    ReadingPolicy policy{.cache = cache, .reading = reading};
    if (name == kRepeat) {
      if (reading == ContextReading::kWithinBudget) {
        return InvalidArgument(
            "policy: repeat needs the whole context; read it whole");
      }
      policy.rereads = true;
      policy.cache.policy = PolicyName::kLookahead;
    } else if (Status s = SetOption(*FindOption("policy"), name, &policy.cache);
               !s.ok()) {
      return s;
    }
    if (policy.cache.policy == PolicyName::kFull) {
      policy.reading = ContextReading::kWithinBudget;
    }
    policies.push_back(policy);
  }
  return policies;
}

ReadingPolicy KeepingAll(const CacheOptions& cache) {
  ReadingPolicy policy{.cache = cache,
                       .reading = ContextReading::kWithinBudget};
  policy.cache.policy = PolicyName::kFull;
  return policy;
}

Status ReadWithinBudgets(Engine& engine, const ContextToRead& context,
                         const ReadingPolicy& policy,
                         std::span<const Budget> budgets,
                         const OnContext& go_on,
                         const std::function<bool()>& cancelled) {
  SequenceOptions options;
  options.cache = policy.cache;
  options.prompt_tokens = static_cast<uint32_t>(context.tokens.size());
  options.max_new_tokens = context.n_new;
  if (policy.reading == ContextReading::kWhole) {
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
