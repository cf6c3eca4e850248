#include "eval/closed_loop.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "eval/forced_run.h"
#include "options/option_table.h"
#include "policy/repeat_policy.h"

namespace lkv {
namespace {

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
  PromptReading reading = PromptReading::kWhole;
};

// Told the logits behind forced token i.
using OnStep = std::function<void(size_t i, std::span<const float> logits)>;

Status FeedForced(Sequence& sequence, std::span<const int32_t> tokens,
                  const OnStep& on_step,
                  const std::function<bool()>& cancelled) {
  const ForcedPart forced{.prefill = {}, .decode = tokens};
  size_t i = 0;
  return RunForced(
      sequence, {&forced, 1},
      [&](const Sequence& now) { on_step(i++, now.logits()); }, {}, cancelled);
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
  const ForcedPart context{.prefill = window.context, .decode = {}};
  SequenceOptions options;
  options.cache = setup.cache;
  options.prompt_tokens = n_context;
  options.max_new_tokens = n_new;
  if (setup.reading == PromptReading::kWithinBudget) {
    for (size_t b = 0; b < budgets.size(); ++b) {
      options.cache.budget = {.kind = Budget::Kind::kShare,
                              .share = budgets[b]};
      Result<std::unique_ptr<Sequence>> sequence =
          StartAndRunForced(engine, {&context, 1}, options, {}, {}, cancelled);
      if (!sequence.ok()) return sequence.status();
      if (Status s = FeedForced(**sequence, forced, on_step(b), cancelled);
          !s.ok()) {
        return s;
      }
    }
    return {};
  }
  options.cache.budget = Budget();
  const bool rereads = setup.cache.policy == PolicyName::kRepeat;
  const auto scores = std::make_shared<RereadScores>(
      engine.architecture().kv_shape().n_lanes(), n_context);
  if (rereads) {
    options.prompt_tokens += n_context;
    options.make_policy = [&](const PolicyCapacity& capacity) {
      return std::make_unique<RepeatPolicy>(scores, capacity);
    };
  }
  Result<std::unique_ptr<Sequence>> whole =
      StartAndRunForced(engine, {&context, 1}, options, {}, {}, cancelled);
  if (!whole.ok()) return whole.status();
  if (rereads) {
    Result<std::unique_ptr<Sequence>> fork = engine.Fork(**whole);
    if (!fork.ok()) return fork.status();
    Status s = engine.Reread(**fork, window.context, *scores, cancelled);
    if (!s.ok()) return s;
  }
  for (size_t b = 0; b < budgets.size(); ++b) {
    Result<std::unique_ptr<Sequence>> fork = engine.Fork(**whole);
    if (!fork.ok()) return fork.status();
    // In tokens of the window, whatever was announced for a second reading.
    const Budget budget = {
        .kind = Budget::Kind::kTokens,
        .amount = static_cast<uint64_t>(budgets[b] * (n_context + n_new))};
    if (Status s = (*fork)->ShrinkBudget(budget); !s.ok()) return s;
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
      {.cache = cache, .reading = PromptReading::kWithinBudget},
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
  std::vector<Setup> setups;
  for (const std::string& policy : options.policies) {
    Setup setup{.cache = options.cache, .reading = options.reading};
    // A whole reading serves all budgets, so it is cut down here.
    setup.cache.reading = PromptReading::kWithinBudget;
    if (Status s = SetOption(*FindOption("policy"), policy, &setup.cache);
        !s.ok()) {
      return s;
    }
    if (setup.cache.policy == PolicyName::kRepeat &&
        options.reading == PromptReading::kWithinBudget) {
      return InvalidArgument(
          "policy: repeat needs the whole context; read it whole");
    }
    // What keeps everything cannot be cut down.
    if (setup.cache.policy == PolicyName::kFull) {
      setup.reading = PromptReading::kWithinBudget;
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
    return [this, &meter](size_t i, std::span<const float> logits) {
      meter.Add(full_[i], logits, window_.following[i + 1]);
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
      report.rows.push_back(
          {.policy = policy, .budget = budget, .windows = {}});
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
          [&](size_t i, std::span<const float> logits) {
            predictions[i].assign(logits.begin(), logits.end());
          },
          cancelled);
      if (!status.ok()) return status;
      done(1);
      const Comparison comparison(window, predictions);
      for (size_t p = 0; p < setups->size(); ++p) {
        std::vector<FidelityMeter> meters(n_budgets);
        status = RunWindow(
            engine, window, (*setups)[p], options.budgets,
            [&](size_t b) { return comparison.Into(meters[b]); }, cancelled);
        if (!status.ok()) return status;
        for (size_t b = 0; b < n_budgets; ++b) {
          report.rows[b * setups->size() + p].windows.push_back(
              meters[b].Result());
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
