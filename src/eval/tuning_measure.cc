#include "eval/tuning_measure.h"

#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "base/seeded_shuffle.h"

namespace lkv {
namespace {

bool HasWindow(const TuningSpace& space, const TuningCandidate& candidate) {
  for (size_t axis = 0; axis < space.size(); ++axis) {
    const TuningChoice& choice = space[axis][candidate.choices[axis]];
    if (choice.base_window_of_budget > 0) return true;
  }
  return false;
}

// In the order of `candidates`. Budgets of one setting go together, so that a
// context that is read whole is read once for them; but a base_window differs
// from budget to budget.
std::vector<ClosedLoopCandidate> Grouped(
    std::span<const TuningCandidate> candidates, const TuningSetup& setup) {
  std::vector<ClosedLoopCandidate> groups;
  const TuningCandidate* last = nullptr;
  for (const TuningCandidate& candidate : candidates) {
    if (last == nullptr || last->choices != candidate.choices ||
        HasWindow(setup.space, candidate)) {
      groups.push_back({.name = DescribeChoices(setup.space, candidate.choices),
                        .cache = OptionsOf(setup.space, setup.base, candidate,
                                           setup.window_tokens()),
                        .budgets = {}});
    }
    groups.back().budgets.push_back(
        {.kind = Budget::Kind::kShare, .share = candidate.share});
    last = &candidate;
  }
  return groups;
}

}  // namespace

Result<std::vector<TokenizedText>> CutIntoWindows(
    std::span<const TokenizedText> texts, const TuningSetup& setup,
    uint32_t per_text, uint64_t seed) {
  // One more: what the last token is followed by.
  const size_t n_window = size_t{setup.window_tokens()} + 1;
  std::mt19937_64 random(seed);
  std::vector<std::vector<TokenizedText>> by_text;
  for (const TokenizedText& text : texts) {
    if (Status s = CheckHoldsWindow(text, n_window); !s.ok()) return s;
    std::vector<size_t> places(text.tokens.size() / n_window);
    std::iota(places.begin(), places.end(), size_t{0});
    SeededShuffle(places, random);
    std::vector<TokenizedText>& windows = by_text.emplace_back();
    for (size_t place : places) {
      if (windows.size() == per_text) break;
      const auto begin =
          text.tokens.begin() + static_cast<ptrdiff_t>(place * n_window);
      windows.push_back({text.name + " at " + std::to_string(place * n_window),
                         {begin, begin + static_cast<ptrdiff_t>(n_window)}});
    }
  }
  std::vector<TokenizedText> all;
  for (uint32_t i = 0; i < per_text; ++i) {
    for (std::vector<TokenizedText>& windows : by_text) {
      if (i < windows.size()) all.push_back(std::move(windows[i]));
    }
  }
  return all;
}

MeasureOnWindow MeasureWithModel(
    Engine& engine, const std::vector<TokenizedText>& windows,
    const TuningSetup& setup,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  return [&engine, &windows, &setup, progress, cancelled](
             uint32_t window, std::span<const TuningCandidate> candidates)
             -> Result<std::vector<TuningFigures>> {
    ClosedLoopOptions options;
    options.candidates = Grouped(candidates, setup);
    options.context_tokens = setup.context_tokens;
    options.forced_tokens = setup.forced_tokens;
    options.windows_per_text = 1;
    options.reading = setup.base.reading;
    options.cache = setup.base;
    options.noise_floor = false;
    Result<ClosedLoopReport> report = RunClosedLoop(
        engine, {&windows[window], 1}, options, progress, cancelled);
    if (!report.ok()) return report.status();
    std::vector<TuningFigures> figures;
    for (const ClosedLoopRow& row : report->rows) {
      const Fidelity& fidelity = row.windows.front();
      const HeldOfWindow& held = row.held.front();
      figures.push_back({.kl_mean = fidelity.kl_mean,
                         .top1_agreement = fidelity.top1_agreement,
                         .resident_bytes_mean = held.mean_bytes,
                         .resident_bytes_max = held.max_bytes,
                         .full_bytes = held.full_bytes});
    }
    return figures;
  };
}

}  // namespace lkv
