#include "eval/closed_loop.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "eval/forced_run.h"
#include "eval/full_cache.h"

namespace lkv {
namespace {

struct Window {
  std::span<const int32_t> context;
  // The tokens forced behind it, and one more: what the last one is followed
  // by.
  std::span<const int32_t> following;
};

// The logits behind each forced token: [forced_tokens][vocab_size].
using Predictions = std::vector<std::vector<float>>;

// Where in a context its replay begins.
size_t ReplayBegin(const ClosedLoopOptions& options) {
  return options.context_tokens / 3;
}

// The places are those of either continuation, so that the two can be compared.
std::vector<Window> WindowsOf(const TokenizedText& text,
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
    const std::span<const int32_t> window = tokens.subspan(begin, n_window);
    const size_t forced_begin = options.continuation == Continuation::kReplay
                                    ? ReplayBegin(options)
                                    : options.context_tokens;
    windows.push_back({.context = window.first(options.context_tokens),
                       .following = window.subspan(forced_begin, n_following)});
  }
  return windows;
}

// How the rows of one policy or candidate are run.
struct Setup {
  ReadingPolicy policy;
  bool raises_shares = false;
  std::vector<Budget> budgets;
  std::vector<size_t> rows;  // of the report, as the budgets
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
// follows within budget b.
Status RunWindow(Engine& engine, const Window& window, const Setup& setup,
                 const ClosedLoopOptions& options,
                 const std::function<OnStep(size_t)>& on_step,
                 const std::function<bool()>& cancelled) {
  const uint32_t n_new = static_cast<uint32_t>(window.following.size() - 1);
  const ContextToRead context{.tokens = window.context,
                              .n_new = n_new,
                              .scope = options.budget_scope,
                              .seen = options.seen_queries,
                              .raises_shares = setup.raises_shares};
  return ReadWithinBudgets(
      engine, context, setup.policy, setup.budgets,
      [&](size_t b, Sequence& sequence) {
        return FeedForced(sequence, window.following.first(n_new), on_step(b),
                          cancelled);
      },
      cancelled);
}

// Runs one window with everything kept.
Status RunWholeWindow(Engine& engine, const Window& window,
                      const CacheOptions& cache,
                      const ClosedLoopOptions& options, const OnStep& on_step,
                      const std::function<bool()>& cancelled) {
  const Setup setup{
      .policy = KeepingAll(cache), .budgets = {Budget()}, .rows = {}};
  return RunWindow(
      engine, window, setup, options, [&](size_t) { return on_step; },
      cancelled);
}

Status CheckWindows(std::span<const TokenizedText> texts,
                    const ClosedLoopOptions& options) {
  const uint64_t n_window =
      uint64_t{options.context_tokens} + options.forced_tokens + 1;
  const uint64_t replay_end =
      ReplayBegin(options) + uint64_t{options.forced_tokens} + 1;
  if (options.continuation == Continuation::kReplay &&
      replay_end > options.context_tokens) {
    return InvalidArgument(
        "a context of " + std::to_string(options.context_tokens) +
        " tokens has no " +
        std::to_string(options.forced_tokens + uint64_t{1}) +
        " tokens behind its first third to replay; force fewer or read more");
  }
  for (const TokenizedText& text : texts) {
    if (Status s = CheckHoldsWindow(text, n_window); !s.ok()) return s;
  }
  return {};
}

// Gives each row of the report a name and a place in a setup.
Result<std::vector<Setup>> SetupsOf(const ClosedLoopOptions& options,
                                    std::vector<ClosedLoopRow>* rows) {
  if (options.budget_scope == BudgetScope::kContext &&
      options.reading == PromptReading::kWithinBudget) {
    return InvalidArgument(
        "budget: a share of the context needs the whole context; read it "
        "whole");
  }
  const auto add_row = [rows](const std::string& name, const Budget& budget,
                              Setup* setup) {
    setup->budgets.push_back(budget);
    setup->rows.push_back(rows->size());
    rows->push_back(
        {.policy = name, .budget = budget, .windows = {}, .held = {}});
  };
  Result<std::vector<ReadingPolicy>> policies =
      ReadingPoliciesOf(options.policies, options.cache, options.reading);
  if (!policies.ok()) return policies.status();
  std::vector<Setup> setups;
  for (ReadingPolicy& policy : *policies) {
    setups.push_back({.policy = std::move(policy), .budgets = {}, .rows = {}});
  }
  for (const Budget& budget : options.budgets) {
    for (size_t p = 0; p < options.policies.size(); ++p) {
      add_row(options.policies[p], budget, &setups[p]);
    }
  }
  for (const ClosedLoopCandidate& candidate : options.candidates) {
    // What they held stands in the report.
    Setup setup{.policy = ReadingPolicyOf(candidate.cache, options.reading),
                .raises_shares = true,
                .budgets = {},
                .rows = {}};
    for (const Budget& budget : candidate.budgets) {
      add_row(candidate.name, budget, &setup);
    }
    setups.push_back(std::move(setup));
  }
  return setups;
}

// What one run of a window adds up to.
struct RunMeter {
  FidelityMeter fidelity;
  HeldOfWindow held;
};

// What a window adds to a report.
struct WindowFindings {
  std::vector<RunMeter> rows;  // as the report's
  std::optional<Fidelity> noise_floor;
};

void AddTo(ClosedLoopReport& report, std::string name,
           const WindowFindings& window) {
  report.window_names.push_back(std::move(name));
  for (size_t r = 0; r < window.rows.size(); ++r) {
    report.rows[r].windows.push_back(window.rows[r].fidelity.Result());
    report.rows[r].held.push_back(window.rows[r].held);
  }
  if (window.noise_floor) report.noise_floor.push_back(*window.noise_floor);
}

// Compares predictions with those of the full cache, window by window.
class Comparison {
 public:
  Comparison(const Window& window, const Predictions& full)
      : window_(window), full_(full) {}

  OnStep Into(RunMeter& meter) const {
    return [this, &meter](size_t i, const Sequence& now) {
      meter.fidelity.Add(full_[i], now.logits(), window_.following[i + 1]);
      const SequenceStats stats = now.stats();
      HeldOfWindow& held = meter.held;
      if (i == 0) {
        held.context_tokens =
            now.n_tokens() - 1 - static_cast<uint32_t>(stats.evicted_tokens);
      }
      const auto add_to_mean = [i](double* mean, uint64_t n_bytes) {
        *mean +=
            (static_cast<double>(n_bytes) - *mean) / static_cast<double>(i + 1);
      };
      add_to_mean(&held.mean_bytes, stats.resident_bytes);
      add_to_mean(&held.mean_read_bytes, stats.read_bytes_last_step);
      held.max_bytes = std::max(held.max_bytes, stats.resident_bytes);
      held.full_bytes = stats.full_bytes;
    };
  }

 private:
  const Window& window_;
  const Predictions& full_;
};

// Every run of one window, for n_rows rows; told(n) that n more are done.
Result<WindowFindings> MeasureWindow(Engine& engine, const Window& window,
                                     std::span<const Setup> setups,
                                     size_t n_rows,
                                     const ClosedLoopOptions& options,
                                     const std::function<void(uint64_t)>& told,
                                     const std::function<bool()>& cancelled) {
  WindowFindings findings;
  findings.rows.resize(n_rows);
  Predictions predictions(options.forced_tokens);
  Status status = RunWholeWindow(
      engine, window, options.cache, options,
      [&](size_t i, const Sequence& now) {
        predictions[i].assign(now.logits().begin(), now.logits().end());
      },
      cancelled);
  if (!status.ok()) return status;
  told(1);
  const Comparison comparison(window, predictions);
  for (const Setup& setup : setups) {
    status = RunWindow(
        engine, window, setup, options,
        [&](size_t b) { return comparison.Into(findings.rows[setup.rows[b]]); },
        cancelled);
    if (!status.ok()) return status;
    told(setup.budgets.size());
  }
  if (!options.noise_floor) return findings;
  RunMeter floor;
  status =
      RunWholeWindow(engine, window, FullCacheRoundedOtherwise(options.cache),
                     options, comparison.Into(floor), cancelled);
  if (!status.ok()) return status;
  findings.noise_floor = floor.fidelity.Result();
  told(1);
  return findings;
}

}  // namespace

Result<ClosedLoopReport> RunClosedLoop(
    Engine& engine, std::span<const TokenizedText> texts,
    const ClosedLoopOptions& options,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  if (Status s = CheckWindows(texts, options); !s.ok()) return s;
  ClosedLoopReport report;
  Result<std::vector<Setup>> setups = SetupsOf(options, &report.rows);
  if (!setups.ok()) return setups.status();
  const uint64_t n_runs =
      texts.size() * options.windows_per_text *
      (1 + uint64_t{options.noise_floor} + report.rows.size());
  uint64_t n_done = 0;
  const auto done = [&](uint64_t n) {
    n_done += n;
    if (progress) progress(n_done, n_runs);
  };
  for (const TokenizedText& text : texts) {
    for (const Window& window : WindowsOf(text, options)) {
      const Result<WindowFindings> findings =
          MeasureWindow(engine, window, *setups, report.rows.size(), options,
                        done, cancelled);
      if (findings.status().code() == StatusCode::kCancelled &&
          !report.window_names.empty()) {
        report.interrupted = true;
        return report;
      }
      if (!findings.ok()) return findings.status();
      AddTo(report,
            text.name + " at " +
                std::to_string(window.context.data() - text.tokens.data()),
            *findings);
    }
  }
  return report;
}

}  // namespace lkv
