#include "eval/closed_loop.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "options/option_table.h"

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

// Runs one window under the cache options; the budget holds from where
// `reading` says. `on_step` is called behind each forced token.
Status RunWindow(Engine& engine, const Window& window,
                 const CacheOptions& cache, ContextReading reading,
                 const std::function<void(size_t, const Sequence&)>& on_step,
                 const std::function<bool()>& cancelled) {
  SequenceOptions options;
  options.cache = cache;
  options.prompt_tokens = static_cast<uint32_t>(window.context.size());
  options.max_new_tokens = static_cast<uint32_t>(window.following.size() - 1);
  const bool shrinks =
      reading == ContextReading::kWhole && cache.policy != PolicyName::kFull;
  if (shrinks) options.cache.budget = Budget();
  Result<std::unique_ptr<Sequence>> started = engine.Start(options);
  if (!started.ok()) return started.status();
  Sequence& sequence = **started;
  if (Status s = sequence.Prefill(window.context, {}, cancelled); !s.ok()) {
    return s;
  }
  if (shrinks) {
    if (Status s = sequence.ShrinkBudget(cache.budget); !s.ok()) return s;
  }
  for (size_t i = 0; i + 1 < window.following.size(); ++i) {
    if (cancelled && cancelled()) {
      return Cancelled("evaluation: stopped on request");
    }
    if (Status s = sequence.Decode(window.following[i]); !s.ok()) return s;
    on_step(i, sequence);
  }
  return {};
}

// Compares a run of a window with the predictions of the full cache.
Result<Fidelity> CompareWindow(Engine& engine, const Window& window,
                               const CacheOptions& cache,
                               ContextReading reading, const Predictions& full,
                               const std::function<bool()>& cancelled) {
  FidelityMeter meter;
  const Status status = RunWindow(
      engine, window, cache, reading,
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

// One row per budget and policy, still without windows.
Result<std::vector<CacheOptions>> CachesOf(const ClosedLoopOptions& options) {
  std::vector<CacheOptions> caches;
  for (double budget : options.budgets) {
    for (const std::string& policy : options.policies) {
      CacheOptions cache = options.cache;
      if (Status s = SetOption(*FindOption("policy"), policy, &cache);
          !s.ok()) {
        return s;
      }
      cache.budget = {.kind = Budget::Kind::kShare, .share = budget};
      caches.push_back(cache);
    }
  }
  return caches;
}

}  // namespace

Result<ClosedLoopReport> RunClosedLoop(
    Engine& engine, std::span<const ClosedLoopText> texts,
    const ClosedLoopOptions& options,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  if (Status s = CheckTexts(texts, options); !s.ok()) return s;
  Result<std::vector<CacheOptions>> caches = CachesOf(options);
  if (!caches.ok()) return caches.status();
  CacheOptions full = options.cache;
  full.policy = PolicyName::kFull;
  full.budget = Budget();
  CacheOptions rounded = full;
  rounded.kv_type =
      full.kv_type == KvTypeName::kBF16 ? KvTypeName::kF16 : KvTypeName::kBF16;

  ClosedLoopReport report;
  for (size_t i = 0; i < caches->size(); ++i) {
    report.rows.push_back(
        {.policy = options.policies[i % options.policies.size()],
         .budget = options.budgets[i / options.policies.size()],
         .windows = {}});
  }
  const uint64_t n_runs =
      texts.size() * options.windows_per_text * (2 + uint64_t{caches->size()});
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
              engine, window, full, options.reading,
              [&](size_t i, const Sequence& sequence) {
                predictions[i].assign(sequence.logits().begin(),
                                      sequence.logits().end());
              },
              cancelled);
          !s.ok()) {
        return s;
      }
      done();
      for (size_t i = 0; i <= caches->size(); ++i) {
        const bool is_floor = i == caches->size();
        Result<Fidelity> fidelity =
            CompareWindow(engine, window, is_floor ? rounded : (*caches)[i],
                          options.reading, predictions, cancelled);
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
