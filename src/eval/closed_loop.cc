#include "eval/closed_loop.h"

#include <algorithm>
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

struct Window {
  std::span<const int32_t> context;
  // The tokens fed behind it, and one more: what the last one is followed by.
  std::span<const int32_t> following;
};

// The logits behind each forced token: [forced_tokens][vocab_size].
using Predictions = std::vector<std::vector<float>>;

std::vector<Window> WindowsOf(const ClosedLoopText& text,
                              const ClosedLoopOptions& options) {
  const size_t n_following = options.forced_tokens + size_t{1};
  const size_t n_window = options.context_tokens + n_following;
  const std::span<const int32_t> tokens(text.tokens);
  std::vector<Window> windows;
  for (uint32_t i = 0; i < options.windows_per_text; ++i) {
    const size_t room = tokens.size() - n_window;
    const size_t begin = options.windows_per_text == 1
                             ? 0
                             : room * i / (options.windows_per_text - 1);
    windows.push_back({.context = tokens.subspan(begin, options.context_tokens),
                       .following = tokens.subspan(
                           begin + options.context_tokens, n_following)});
  }
  return windows;
}

// How the rows of one policy are run.
struct Setup {
  CacheOptions cache;  // the budget is a row's
  ContextReading reading = ContextReading::kWhole;
  BudgetScope budget_scope = BudgetScope::kWindow;
  SeenQueries seen_queries = SeenQueries::kSampled;
  bool rereads = false;  // the policy is `repeat`
};

// Told the state behind forced token i.
using OnStep = std::function<void(size_t i, const Sequence& now)>;

Status FeedForced(Sequence& sequence, std::span<const int32_t> tokens,
                  const OnStep& on_step,
                  const std::function<bool()>& cancelled) {
  const ForcedPart forced{.prefill = {}, .decode = tokens};
  size_t i = 0;
  return RunForced(
      sequence, {&forced, 1}, [&](const Sequence& now) { on_step(i++, now); },
      {}, cancelled);
}

// While it is set, policies see every query of a prompt.
class WatchesAllQueries final : public AttentionObserver {
 public:
  void OnAttention(const AttentionSample&) override {}
  bool WatchesAll() const override { return true; }
};

// Starts a sequence with the context read.
Result<std::unique_ptr<Sequence>> ReadContext(
    Engine& engine, const Window& window, SeenQueries seen,
    const SequenceOptions& options, const std::function<bool()>& cancelled) {
  const ForcedPart context{.prefill = window.context, .decode = {}};
  WatchesAllQueries watches_all;
  if (seen == SeenQueries::kAll) engine.SetObserver(&watches_all);
  Result<std::unique_ptr<Sequence>> sequence =
      StartAndRunForced(engine, {&context, 1}, options, {}, {}, cancelled);
  engine.SetObserver(nullptr);
  return sequence;
}

// Cuts a context that was read whole down to a share.
Status CutDown(Sequence& sequence, const Setup& setup, double share,
               uint32_t n_context, uint32_t n_new) {
  // In tokens, whatever was announced for a second reading.
  Budget budget = {.kind = Budget::Kind::kTokens};
  if (setup.budget_scope == BudgetScope::kWindow) {
    budget.amount = static_cast<uint64_t>(share * (n_context + n_new));
    return sequence.ShrinkBudget(budget, 0);
  }
  budget.amount = static_cast<uint64_t>(share * n_context) + n_new;
  return sequence.ShrinkBudget(budget, n_new);
}

// Runs one window within each of `budgets`, shares of the window; on_step(b)
// is told what follows within budget b. A context that is read whole is read
// once, and a fork of it cut down to each budget.
Status RunWindow(Engine& engine, const Window& window, const Setup& setup,
                 std::span<const double> budgets,
                 const std::function<OnStep(size_t)>& on_step,
                 const std::function<bool()>& cancelled) {
  const uint32_t n_context = static_cast<uint32_t>(window.context.size());
  const uint32_t n_new = static_cast<uint32_t>(window.following.size() - 1);
  const std::span<const int32_t> forced = window.following.first(n_new);
  SequenceOptions options;
  options.cache = setup.cache;
  options.prompt_tokens = n_context;
  options.max_new_tokens = n_new;
  if (setup.reading == ContextReading::kWithinBudget) {
    for (size_t b = 0; b < budgets.size(); ++b) {
      options.cache.budget = {.kind = Budget::Kind::kShare,
                              .share = budgets[b]};
      Result<std::unique_ptr<Sequence>> sequence =
          ReadContext(engine, window, setup.seen_queries, options, cancelled);
      if (!sequence.ok()) return sequence.status();
      if (Status s = FeedForced(**sequence, forced, on_step(b), cancelled);
          !s.ok()) {
        return s;
      }
    }
    return {};
  }
  options.cache.budget = Budget();
  RereadScores scores(
      setup.rereads ? engine.architecture().kv_shape().n_lanes() : 0,
      n_context);
  if (setup.rereads) {
    options.prompt_tokens += n_context;
    options.make_policy = [&](const PolicyCapacity& capacity) {
      return std::make_unique<RepeatPolicy>(scores, capacity);
    };
  }
  Result<std::unique_ptr<Sequence>> whole =
      ReadContext(engine, window, setup.seen_queries, options, cancelled);
  if (!whole.ok()) return whole.status();
  if (setup.rereads) {
    Result<std::unique_ptr<Sequence>> fork = engine.Fork(**whole);
    if (!fork.ok()) return fork.status();
    Status s = Reread(engine, **fork, window.context, scores, cancelled);
    if (!s.ok()) return s;
  }
  for (size_t b = 0; b < budgets.size(); ++b) {
    Result<std::unique_ptr<Sequence>> fork = engine.Fork(**whole);
    if (!fork.ok()) return fork.status();
    if (Status s = CutDown(**fork, setup, budgets[b], n_context, n_new);
        !s.ok()) {
      return s;
    }
    if (Status s = FeedForced(**fork, forced, on_step(b), cancelled); !s.ok()) {
      return s;
    }
  }
  return {};
}

// Runs one window with everything kept.
Status RunWholeWindow(Engine& engine, const Window& window,
                      const CacheOptions& cache, const OnStep& on_step,
                      const std::function<bool()>& cancelled) {
  const double everything = 1;
  return RunWindow(
      engine, window,
      {.cache = cache, .reading = ContextReading::kWithinBudget},
      {&everything, 1}, [&](size_t) { return on_step; }, cancelled);
}

Status CheckTexts(std::span<const ClosedLoopText> texts,
                  const ClosedLoopOptions& options) {
  const uint64_t n_window =
      uint64_t{options.context_tokens} + options.forced_tokens + 1;
  for (const ClosedLoopText& text : texts) {
    if (text.tokens.size() < n_window) {
      return InvalidArgument(
          text.name + ": has " + std::to_string(text.tokens.size()) +
          " tokens, fewer than a window of " + std::to_string(n_window) +
          "; give a longer text or a shorter context");
    }
  }
  return {};
}

Result<std::vector<Setup>> SetupsOf(const ClosedLoopOptions& options) {
  if (options.budget_scope == BudgetScope::kContext &&
      options.reading == ContextReading::kWithinBudget) {
    return InvalidArgument(
        "budget: a share of the context needs the whole context; read it "
        "whole");
  }
  std::vector<Setup> setups;
  for (const std::string& policy : options.policies) {
    Setup setup{.cache = options.cache,
                .reading = options.reading,
                .budget_scope = options.budget_scope,
                .seen_queries = options.seen_queries};
    if (policy == kRepeat) {
      if (options.reading == ContextReading::kWithinBudget) {
        return InvalidArgument(
            "policy: repeat needs the whole context; read it whole");
      }
      setup.rereads = true;
      setup.cache.policy = PolicyName::kLookahead;
    } else if (Status s =
                   SetOption(*FindOption("policy"), policy, &setup.cache);
               !s.ok()) {
      return s;
    }
    // What keeps everything cannot be cut down.
    if (setup.cache.policy == PolicyName::kFull) {
      setup.reading = ContextReading::kWithinBudget;
    }
    setups.push_back(setup);
  }
  return setups;
}

// Compares predictions with those of the full cache, window by window.
class Comparison {
 public:
  Comparison(const Window& window, const Predictions& full)
      : window_(window), full_(full) {}

  OnStep Into(FidelityMeter& meter) const {
    return [this, &meter](size_t i, const Sequence& now) {
      meter.Add(full_[i], now.logits(), window_.following[i + 1]);
    };
  }
  // Notes what was held when the first token came, too.
  OnStep Into(FidelityMeter& meter, uint32_t& held_tokens) const {
    return [add = Into(meter), &held_tokens](size_t i, const Sequence& now) {
      if (i == 0) {
        held_tokens = now.n_tokens() - 1 -
                      static_cast<uint32_t>(now.stats().evicted_tokens);
      }
      add(i, now);
    };
  }

 private:
  const Window& window_;
  const Predictions& full_;
};

}  // namespace

Result<ClosedLoopReport> RunClosedLoop(
    Engine& engine, std::span<const ClosedLoopText> texts,
    const ClosedLoopOptions& options,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  if (Status s = CheckTexts(texts, options); !s.ok()) return s;
  Result<std::vector<Setup>> setups = SetupsOf(options);
  if (!setups.ok()) return setups.status();
  CacheOptions full = options.cache;
  full.policy = PolicyName::kFull;
  CacheOptions rounded = full;
  rounded.kv_type =
      full.kv_type == KvTypeName::kBF16 ? KvTypeName::kF16 : KvTypeName::kBF16;

  ClosedLoopReport report;
  for (double budget : options.budgets) {
    for (const std::string& policy : options.policies) {
      report.rows.push_back({.policy = policy,
                             .budget = budget,
                             .windows = {},
                             .held_tokens = {}});
    }
  }
  const size_t n_budgets = options.budgets.size();
  const uint64_t n_runs = texts.size() * options.windows_per_text *
                          (2 + uint64_t{setups->size()} * n_budgets);
  uint64_t n_done = 0;
  const auto done = [&](uint64_t n) {
    n_done += n;
    if (progress) progress(n_done, n_runs);
  };
  for (const ClosedLoopText& text : texts) {
    for (const Window& window : WindowsOf(text, options)) {
      report.window_names.push_back(
          text.name + " at " +
          std::to_string(window.context.data() - text.tokens.data()));
      Predictions predictions(options.forced_tokens);
      Status status = RunWholeWindow(
          engine, window, full,
          [&](size_t i, const Sequence& now) {
            predictions[i].assign(now.logits().begin(), now.logits().end());
          },
          cancelled);
      if (!status.ok()) return status;
      done(1);
      const Comparison comparison(window, predictions);
      for (size_t p = 0; p < setups->size(); ++p) {
        std::vector<FidelityMeter> meters(n_budgets);
        std::vector<uint32_t> held_tokens(n_budgets);
        status = RunWindow(
            engine, window, (*setups)[p], options.budgets,
            [&](size_t b) {
              return comparison.Into(meters[b], held_tokens[b]);
            },
            cancelled);
        if (!status.ok()) return status;
        for (size_t b = 0; b < n_budgets; ++b) {
          ClosedLoopRow& row = report.rows[b * setups->size() + p];
          row.windows.push_back(meters[b].Result());
          row.held_tokens.push_back(held_tokens[b]);
        }
        done(n_budgets);
      }
      FidelityMeter floor;
      status = RunWholeWindow(engine, window, rounded, comparison.Into(floor),
                              cancelled);
      if (!status.ok()) return status;
      report.noise_floor.push_back(floor.Result());
      done(1);
    }
  }
  return report;
}

}  // namespace lkv
