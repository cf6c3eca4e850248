#include "eval/closed_loop.h"

#include <algorithm>
#include <utility>

#include "eval/forced_run.h"

namespace lkv {
namespace {

struct Window {
  std::span<const int32_t> context;
  // The tokens fed behind it, and one more: what the last one is followed by.
  std::span<const int32_t> following;
};

// The logits behind each forced token: [forced_tokens][vocab_size].
using Predictions = std::vector<std::vector<float>>;

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
    windows.push_back({.context = tokens.subspan(begin, options.context_tokens),
                       .following = tokens.subspan(
                           begin + options.context_tokens, n_following)});
  }
  return windows;
}

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

// Runs one window within each of `budgets`; on_step(b) is told what follows
// within budget b.
Status RunWindow(Engine& engine, const Window& window,
                 const ReadingPolicy& policy, std::span<const Budget> budgets,
                 const std::function<OnStep(size_t)>& on_step,
                 const std::function<bool()>& cancelled) {
  const uint32_t n_new = static_cast<uint32_t>(window.following.size() - 1);
  return ReadWithinBudgets(
      engine, {.tokens = window.context, .n_new = n_new}, policy, budgets,
      [&](size_t b, Sequence& sequence) {
        return FeedForced(sequence, window.following.first(n_new), on_step(b),
                          cancelled);
      },
      cancelled);
}

// Runs one window with everything kept.
Status RunWholeWindow(Engine& engine, const Window& window,
                      const CacheOptions& cache, const OnStep& on_step,
                      const std::function<bool()>& cancelled) {
  const Budget everything;
  return RunWindow(
      engine, window, KeepingAll(cache), {&everything, 1},
      [&](size_t) { return on_step; }, cancelled);
}

Status CheckTexts(std::span<const TokenizedText> texts,
                  const ClosedLoopOptions& options) {
  const uint64_t n_window =
      uint64_t{options.context_tokens} + options.forced_tokens + 1;
  for (const TokenizedText& text : texts) {
    if (text.tokens.size() < n_window) {
      return InvalidArgument(
          text.name + ": has " + std::to_string(text.tokens.size()) +
          " tokens, fewer than a window of " + std::to_string(n_window) +
          "; give a longer text or a shorter context");
    }
  }
  return {};
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
    Engine& engine, std::span<const TokenizedText> texts,
    const ClosedLoopOptions& options,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  if (Status s = CheckTexts(texts, options); !s.ok()) return s;
  Result<std::vector<ReadingPolicy>> policies =
      ReadingPoliciesOf(options.policies, options.cache, options.reading);
  if (!policies.ok()) return policies.status();
  CacheOptions rounded = options.cache;
  rounded.kv_type = rounded.kv_type == KvTypeName::kBF16 ? KvTypeName::kF16
                                                         : KvTypeName::kBF16;

  ClosedLoopReport report;
  for (const Budget& budget : options.budgets) {
    for (const std::string& policy : options.policies) {
      report.rows.push_back(
          {.policy = policy, .budget = budget, .windows = {}});
    }
  }
  const size_t n_budgets = options.budgets.size();
  const uint64_t n_runs = texts.size() * options.windows_per_text *
                          (2 + uint64_t{policies->size()} * n_budgets);
  uint64_t n_done = 0;
  const auto done = [&](uint64_t n) {
    n_done += n;
    if (progress) progress(n_done, n_runs);
  };
  for (const TokenizedText& text : texts) {
    for (const Window& window : WindowsOf(text, options)) {
      report.window_names.push_back(
          text.name + " at " +
          std::to_string(window.context.data() - text.tokens.data()));
      Predictions predictions(options.forced_tokens);
      Status status = RunWholeWindow(
          engine, window, options.cache,
          [&](size_t i, std::span<const float> logits) {
            predictions[i].assign(logits.begin(), logits.end());
          },
          cancelled);
      if (!status.ok()) return status;
      done(1);
      const Comparison comparison(window, predictions);
      for (size_t p = 0; p < policies->size(); ++p) {
        std::vector<FidelityMeter> meters(n_budgets);
        status = RunWindow(
            engine, window, (*policies)[p], options.budgets,
            [&](size_t b) { return comparison.Into(meters[b]); }, cancelled);
        if (!status.ok()) return status;
        for (size_t b = 0; b < n_budgets; ++b) {
          report.rows[b * policies->size() + p].windows.push_back(
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
