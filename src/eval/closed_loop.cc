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

// How the rows of one policy or candidate are run.
struct Setup {
  CacheOptions cache;  // the budget is a row's
  PromptReading reading = PromptReading::kWhole;
  std::vector<double> budgets = {};
  std::vector<size_t> rows = {};  // of the report, as the budgets
};

// Told the sequence after forced token i, with the logits behind it.
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

// Runs one window within each budget of the setup; on_step(b) is told what
// follows within budget b. A context that is read whole is read once, and a
// fork of it cut down to each budget.
Status RunWindow(Engine& engine, const Window& window, const Setup& setup,
                 const std::function<OnStep(size_t)>& on_step,
                 const std::function<bool()>& cancelled) {
  const uint32_t n_context = static_cast<uint32_t>(window.context.size());
  const uint32_t n_new = static_cast<uint32_t>(window.following.size() - 1);
  const std::span<const int32_t> forced = window.following.first(n_new);
  const ForcedPart context{.prefill = window.context, .decode = {}};
  const std::span<const double> budgets(setup.budgets);
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
  return RunWindow(
      engine, window,
      {.cache = cache,
       .reading = PromptReading::kWithinBudget,
       .budgets = {1.0}},
      [&](size_t) { return on_step; }, cancelled);
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

// How a policy of that name is run; the budgets are still to come.
Result<Setup> SetupOf(const std::string& policy,
                      const ClosedLoopOptions& options) {
  Setup setup{.cache = options.cache, .reading = options.reading};
  if (Status s = SetOption(*FindOption("policy"), policy, &setup.cache);
      !s.ok()) {
    return s;
  }
  if (setup.cache.policy == PolicyName::kRepeat &&
      options.reading == PromptReading::kWithinBudget) {
    return InvalidArgument(
        "policy: repeat needs the whole context; read it whole");
  }
  return setup;
}

// Gives each row of the report a name and a place in a setup.
Result<std::vector<Setup>> SetupsOf(const ClosedLoopOptions& options,
                                    std::vector<ClosedLoopRow>* rows) {
  const auto add_row = [rows](const std::string& name, double budget,
                              Setup* setup) {
    setup->budgets.push_back(budget);
    setup->rows.push_back(rows->size());
    rows->push_back(
        {.policy = name, .budget = budget, .windows = {}, .residents = {}});
  };
  std::vector<Setup> setups;
  for (const std::string& policy : options.policies) {
    Result<Setup> setup = SetupOf(policy, options);
    if (!setup.ok()) return setup.status();
    setups.push_back(*std::move(setup));
  }
  for (double budget : options.budgets) {
    for (size_t p = 0; p < options.policies.size(); ++p) {
      add_row(options.policies[p], budget, &setups[p]);
    }
  }
  for (const ClosedLoopCandidate& candidate : options.candidates) {
    Setup setup{.cache = candidate.cache, .reading = options.reading};
    for (double budget : candidate.budgets) {
      add_row(candidate.name, budget, &setup);
    }
    setups.push_back(std::move(setup));
  }
  for (Setup& setup : setups) {
    // A whole reading serves all budgets, so it is cut down here.
    setup.cache.reading = PromptReading::kWithinBudget;
    // What keeps everything cannot be cut down.
    if (setup.cache.policy == PolicyName::kFull) {
      setup.reading = PromptReading::kWithinBudget;
    }
  }
  return setups;
}

// What one run of a window adds up to.
struct RunMeter {
  FidelityMeter fidelity;
  ResidentBytes resident;
};

// Compares predictions with those of the full cache, window by window.
class Comparison {
 public:
  Comparison(const Window& window, const Predictions& full)
      : window_(window), full_(full) {}

  OnStep Into(RunMeter& meter) const {
    return [this, &meter](size_t i, const Sequence& now) {
      meter.fidelity.Add(full_[i], now.logits(), window_.following[i + 1]);
      const SequenceStats stats = now.stats();
      ResidentBytes& resident = meter.resident;
      resident.mean +=
          (static_cast<double>(stats.resident_bytes) - resident.mean) /
          static_cast<double>(i + 1);
      resident.max = std::max(resident.max, stats.resident_bytes);
      resident.full = stats.full_bytes;
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
  ClosedLoopReport report;
  Result<std::vector<Setup>> setups = SetupsOf(options, &report.rows);
  if (!setups.ok()) return setups.status();
  CacheOptions full = options.cache;
  full.policy = PolicyName::kFull;
  CacheOptions rounded = full;
  rounded.kv_type =
      full.kv_type == KvTypeName::kBF16 ? KvTypeName::kF16 : KvTypeName::kBF16;

  const uint64_t n_runs =
      texts.size() * options.windows_per_text *
      (1 + uint64_t{options.noise_floor} + report.rows.size());
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
      for (const Setup& setup : *setups) {
        std::vector<RunMeter> meters(setup.budgets.size());
        status = RunWindow(
            engine, window, setup,
            [&](size_t b) { return comparison.Into(meters[b]); }, cancelled);
        if (!status.ok()) return status;
        for (size_t b = 0; b < meters.size(); ++b) {
          ClosedLoopRow& row = report.rows[setup.rows[b]];
          row.windows.push_back(meters[b].fidelity.Result());
          row.residents.push_back(meters[b].resident);
        }
        done(meters.size());
      }
      if (!options.noise_floor) continue;
      RunMeter floor;
      status = RunWholeWindow(engine, window, rounded, comparison.Into(floor),
                              cancelled);
      if (!status.ok()) return status;
      report.noise_floor.push_back(floor.fidelity.Result());
      done(1);
    }
  }
  return report;
}

}  // namespace lkv
