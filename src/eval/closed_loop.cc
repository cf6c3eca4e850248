#include "eval/closed_loop.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "eval/forced_run.h"
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

// Watches a text that is read again behind itself.
class RereadObserver final : public AttentionObserver {
 public:
  RereadObserver(const KvShape& shape, RereadScores& scores)
      : shape_(shape), scores_(scores) {}
  void OnAttention(const AttentionSample& sample) override {
    scores_.Observe(shape_.LaneOf(sample.layer, sample.kv_head),
                    sample.mass_max);
  }
  bool WatchesAll() const override { return true; }

 private:
  const KvShape shape_;
  RereadScores& scores_;
};

// Has the model read the context once more, on a fork that goes away again.
Status Reread(Engine& engine, const Sequence& sequence,
              std::span<const int32_t> context, RereadScores& scores,
              const std::function<bool()>& cancelled) {
  Result<std::unique_ptr<Sequence>> fork = engine.Fork(sequence);
  if (!fork.ok()) return fork.status();
  RereadObserver observer(engine.architecture().kv_shape(), scores);
  engine.SetObserver(&observer);
  const Status status = (*fork)->Prefill(context, {}, cancelled);
  engine.SetObserver(nullptr);
  return status;
}

// How a row is run.
struct Setup {
  CacheOptions cache;  // with the row's budget
  ContextReading reading = ContextReading::kWhole;
  bool rereads = false;  // the policy is `repeat`
};

// Runs one window; the budget holds from where `reading` says. `on_step` is
// called behind each forced token.
Status RunWindow(Engine& engine, const Window& window, const Setup& setup,
                 const std::function<void(size_t, const Sequence&)>& on_step,
                 const std::function<bool()>& cancelled) {
  const uint32_t n_context = static_cast<uint32_t>(window.context.size());
  const uint32_t n_new = static_cast<uint32_t>(window.following.size() - 1);
  SequenceOptions options;
  options.cache = setup.cache;
  options.prompt_tokens = n_context;
  options.max_new_tokens = n_new;
  RereadScores scores(
      setup.rereads ? engine.architecture().kv_shape().n_lanes() : 0,
      n_context);
  if (setup.rereads) {
    options.prompt_tokens += n_context;
    options.make_policy = [&](const PolicyCapacity& capacity) {
      return std::make_unique<RepeatPolicy>(scores, capacity);
    };
  }
  const bool shrinks = setup.reading == ContextReading::kWhole &&
                       setup.cache.policy != PolicyName::kFull;
  if (shrinks) options.cache.budget = Budget();
  Result<std::unique_ptr<Sequence>> started = engine.Start(options);
  if (!started.ok()) return started.status();
  Sequence& sequence = **started;
  const ForcedPart context{.prefill = window.context, .decode = {}};
  if (Status s = RunForced(sequence, {&context, 1}, {}, {}, cancelled);
      !s.ok()) {
    return s;
  }
  if (setup.rereads) {
    Status s = Reread(engine, sequence, window.context, scores, cancelled);
    if (!s.ok()) return s;
  }
  if (shrinks) {
    // In tokens of the window, whatever was announced for a second reading.
    const Budget budget = {.kind = Budget::Kind::kTokens,
                           .amount = static_cast<uint64_t>(
                               setup.cache.budget.share * (n_context + n_new))};
    if (Status s = sequence.ShrinkBudget(budget); !s.ok()) return s;
  }
  const ForcedPart forced{.prefill = {},
                          .decode = window.following.first(n_new)};
  size_t i = 0;
  return RunForced(
      sequence, {&forced, 1}, [&](const Sequence& now) { on_step(i++, now); },
      {}, cancelled);
}

// Compares a run of a window with the predictions of the full cache.
Result<Fidelity> CompareWindow(Engine& engine, const Window& window,
                               const Setup& setup, const Predictions& full,
                               const std::function<bool()>& cancelled) {
  FidelityMeter meter;
  const Status status = RunWindow(
      engine, window, setup,
      [&](size_t i, const Sequence& sequence) {
        meter.Add(full[i], sequence.logits(), window.following[i + 1]);
      },
      cancelled);
  if (!status.ok()) return status;
  return meter.Result();
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

// By budget, then policy.
Result<std::vector<Setup>> SetupsOf(const ClosedLoopOptions& options) {
  std::vector<Setup> setups;
  for (double budget : options.budgets) {
    for (const std::string& policy : options.policies) {
      Setup setup{.cache = options.cache, .reading = options.reading};
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
      setup.cache.budget = {.kind = Budget::Kind::kShare, .share = budget};
      setups.push_back(setup);
    }
  }
  return setups;
}

}  // namespace

Result<ClosedLoopReport> RunClosedLoop(
    Engine& engine, std::span<const ClosedLoopText> texts,
    const ClosedLoopOptions& options,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  if (Status s = CheckTexts(texts, options); !s.ok()) return s;
  Result<std::vector<Setup>> setups = SetupsOf(options);
  if (!setups.ok()) return setups.status();
  Setup full{.cache = options.cache, .reading = options.reading};
  full.cache.policy = PolicyName::kFull;
  full.cache.budget = Budget();
  Setup rounded = full;
  rounded.cache.kv_type = full.cache.kv_type == KvTypeName::kBF16
                              ? KvTypeName::kF16
                              : KvTypeName::kBF16;

  ClosedLoopReport report;
  for (size_t i = 0; i < setups->size(); ++i) {
    report.rows.push_back(
        {.policy = options.policies[i % options.policies.size()],
         .budget = options.budgets[i / options.policies.size()],
         .windows = {}});
  }
  const uint64_t n_runs =
      texts.size() * options.windows_per_text * (2 + uint64_t{setups->size()});
  uint64_t n_done = 0;
  const auto done = [&] {
    if (progress) progress(++n_done, n_runs);
  };
  for (const ClosedLoopText& text : texts) {
    for (const Window& window : WindowsOf(text, options)) {
      report.window_names.push_back(
          text.name + " at " +
          std::to_string(window.context.data() - text.tokens.data()));
      Predictions predictions(options.forced_tokens);
      if (Status s = RunWindow(
              engine, window, full,
              [&](size_t i, const Sequence& sequence) {
                predictions[i].assign(sequence.logits().begin(),
                                      sequence.logits().end());
              },
              cancelled);
          !s.ok()) {
        return s;
      }
      done();
      for (size_t i = 0; i <= setups->size(); ++i) {
        const bool is_floor = i == setups->size();
        Result<Fidelity> fidelity =
            CompareWindow(engine, window, is_floor ? rounded : (*setups)[i],
                          predictions, cancelled);
        if (!fidelity.ok()) return fidelity.status();
        (is_floor ? report.noise_floor : report.rows[i].windows)
            .push_back(*fidelity);
        done();
      }
    }
  }
  return report;
}

}  // namespace lkv
