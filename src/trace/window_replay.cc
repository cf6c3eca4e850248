#include "trace/window_replay.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "policy/lane_turn.h"
#include "policy/pattern_detector.h"
#include "policy/protection.h"
#include "policy/window_limits.h"

namespace lkv {
namespace {

// What the detector needs of one lane: for every step the sums of its group
// means over pages, PagesOf(step + 1) of them, one row behind the other.
using PageMasses = std::vector<float>;

PageMasses CopyPageMasses(const LaneTrace& lane) {
  PageMasses masses;
  for (uint32_t step = 0; step < lane.n_steps(); ++step) {
    const float* row = lane.pages(step).mean;
    masses.insert(masses.end(), row, row + PagesOf(step + 1));
  }
  return masses;
}

Result<std::vector<PageMasses>> ReadPageMasses(
    const TraceReader& trace, ThreadTeam& team,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  const uint32_t n_lanes = trace.info().n_lanes();
  std::vector<PageMasses> masses(n_lanes);
  std::vector<Status> status(n_lanes);
  // As many whole lanes in memory as there are threads.
  for (uint32_t first = 0; first < n_lanes; first += team.n_threads()) {
    if (cancelled && cancelled()) {
      return Cancelled("bench window: stopped on request");
    }
    const uint32_t n = std::min(team.n_threads(), n_lanes - first);
    team.ForEach(n, [&](size_t i) {
      const Result<LaneTrace> lane =
          trace.ReadLane(first + static_cast<uint32_t>(i));
      if (lane.ok()) {
        masses[first + i] = CopyPageMasses(*lane);
      } else {
        status[first + i] = lane.status();
      }
    });
    for (uint32_t i = first; i < first + n; ++i) {
      if (!status[i].ok()) return status[i];
    }
    if (progress) progress(first + n, n_lanes);
  }
  return masses;
}

}  // namespace

Result<std::vector<double>> ReplayPatternChange(
    const TraceReader& trace, const CacheOptions& options, ThreadTeam& team,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  const Result<std::vector<PageMasses>> masses =
      ReadPageMasses(trace, team, progress, cancelled);
  if (!masses.ok()) return masses.status();
  const uint32_t n_steps = trace.n_steps();
  const auto n_lanes = static_cast<uint32_t>(masses->size());
  PatternDetector detector(
      {.metric = options.change_metric,
       .smoothing = options.change_smoothing,
       .ends = ProtectedEndsOf(options),
       .n_kv_heads = trace.info().shape.n_kv_heads},
      {.n_lanes = n_lanes, .pages_per_lane = PagesOf(n_steps)});
  std::vector<double> change;
  // The detector looks at pages only, so the first slot of each stands for all.
  std::vector<float> slots(size_t{PagesOf(n_steps)} * kPageTokens);
  size_t row = 0;
  for (uint32_t step = 0; step < n_steps; ++step) {
    const uint32_t n_pages = PagesOf(step + 1);
    for (uint32_t lane = 0; lane < n_lanes; ++lane) {
      for (uint32_t p = 0; p < n_pages; ++p) {
        slots[size_t{p} * kPageTokens] = (*masses)[lane][row + p];
      }
      if (step % kPageTokens == 0) detector.AddPage(lane);
      detector.Observe({.lane = lane,
                        .query_pos = step,
                        .tokens_since = 1,
                        .n_slots = step + 1,
                        .mass_max = slots.data(),
                        .mass_mean = slots.data()});
      if (HasTurn(lane, step + 1, 1)) detector.Evaluate(lane);
    }
    row += n_pages;
    change.push_back(detector.Update());
  }
  return change;
}

WindowController::Options ReplayedWindow(const CacheOptions& options,
                                         double budget, uint32_t n_steps) {
  const auto whole_pages = [](double tokens) {
    return kPageTokens *
           std::max(1u, static_cast<uint32_t>(tokens / kPageTokens));
  };
  const uint32_t budget_tokens = whole_pages(budget * n_steps);
  WindowLimits limits = {.base_tokens = whole_pages(budget_tokens / 4),
                         .min_tokens = whole_pages(budget_tokens / 16),
                         .max_tokens = budget_tokens};
  if (HasWindowKeys(options)) {
    // No machine's memory limits what is replayed.
    limits = ResolveWindow(options, n_steps, UINT64_MAX, budget_tokens);
  }
  return {.strategy = options.window_strategy,
          .law = options.window_law,
          .limits = limits,
          .budget_tokens = budget_tokens,
          .change_threshold = options.change_threshold,
          .dwell_steps = options.dwell_steps,
          .warmup_tokens = options.warmup_tokens,
          .switch_tokens = n_steps / 2};
}

std::vector<uint32_t> ReplayWindow(std::span<const double> change,
                                   const WindowController::Options& options) {
  WindowController controller(options);
  std::vector<uint32_t> window;
  for (double now : change) {
    controller.Update(now, static_cast<uint32_t>(window.size()) + 1);
    window.push_back(controller.window_tokens());
  }
  return window;
}

WindowSummary SummarizeWindow(std::span<const uint32_t> window) {
  CHECK(!window.empty());
  const auto [min, max] = std::minmax_element(window.begin(), window.end());
  const auto reach = window.first(
      std::min<size_t>(window.size(), WindowSummary::kReachTokens));
  WindowSummary summary{
      .mean_tokens = std::accumulate(window.begin(), window.end(), 0.0) /
                     static_cast<double>(window.size()),
      .min_tokens = *min,
      .max_tokens = *max,
      .first_max_tokens = *std::max_element(reach.begin(), reach.end()),
      .end_tokens = window.back()};
  bool has_grown = false;
  for (size_t i = 1; i < window.size(); ++i) {
    if (window[i] == window[i - 1]) continue;
    const bool grows = window[i] > window[i - 1];
    if (summary.n_moves > 0 && grows != has_grown) ++summary.n_reversals;
    has_grown = grows;
    ++summary.n_moves;
  }
  return summary;
}

}  // namespace lkv
