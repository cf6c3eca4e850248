#include "cli/eval_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "base/bootstrap.h"
#include "base/check.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "options/budget_text.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;
using Windows = std::vector<Fidelity>;

// The mean of a field over the windows drawn.
double MeanOver(const Windows& windows, double Fidelity::*field,
                const std::vector<size_t>& draw) {
  double sum = 0;
  for (size_t i : draw) sum += windows[i].*field;
  return sum / static_cast<double>(draw.size());
}

// One row's means over all windows, and its KL against the best other row's.
struct Figures {
  double kl_mean = 0;
  double kl_mean_sure = 0;
  double kl_p99 = 0;
  double top1_agreement = 0;
  double first_divergence = 0;
  double top5_overlap = 0;
  double perplexity_ratio = 0;  // geometric
  std::optional<Interval> kl_ci95, top1_ci95;
};

class Statistics {
 public:
  explicit Statistics(size_t n_windows)
      : all_(n_windows), resamples_(n_windows) {
    std::iota(all_.begin(), all_.end(), size_t{0});
  }

  Figures Of(const Windows& windows) const {
    CHECK(windows.size() == all_.size());
    Figures figures;
    const auto mean = [&](double Fidelity::*field) {
      return MeanOver(windows, field, all_);
    };
    figures.kl_mean = mean(&Fidelity::kl_mean);
    figures.kl_mean_sure = mean(&Fidelity::kl_mean_sure);
    figures.kl_p99 = mean(&Fidelity::kl_p99);
    figures.top1_agreement = mean(&Fidelity::top1_agreement);
    for (const Fidelity& window : windows) {
      figures.first_divergence += window.first_divergence;
    }
    figures.first_divergence /= static_cast<double>(windows.size());
    figures.top5_overlap = mean(&Fidelity::top5_overlap);
    double log_ratio = 0;
    for (const Fidelity& window : windows) {
      log_ratio += std::log(window.perplexity_ratio);
    }
    figures.perplexity_ratio =
        std::exp(log_ratio / static_cast<double>(windows.size()));
    if (windows.size() < 2) return figures;
    const auto ci95 = [&](double Fidelity::*field) {
      return resamples_.Ci95([&](const std::vector<size_t>& draw) {
        return MeanOver(windows, field, draw);
      });
    };
    figures.kl_ci95 = ci95(&Fidelity::kl_mean);
    figures.top1_ci95 = ci95(&Fidelity::top1_agreement);
    return figures;
  }

  double KlMean(const Windows& windows) const {
    return MeanOver(windows, &Fidelity::kl_mean, all_);
  }
  double KlRatio(const Windows& windows, const Windows& other) const {
    return Ratio(windows, other, all_);
  }
  // On the same windows each time; none of one window.
  std::optional<Interval> KlRatioCi95(const Windows& windows,
                                      const Windows& other) const {
    if (windows.size() < 2) return std::nullopt;
    return resamples_.Ci95([&](const std::vector<size_t>& draw) {
      return Ratio(windows, other, draw);
    });
  }

 private:
  static double Ratio(const Windows& windows, const Windows& other,
                      const std::vector<size_t>& draw) {
    const double whole = MeanOver(other, &Fidelity::kl_mean, draw);
    return whole > 0 ? MeanOver(windows, &Fidelity::kl_mean, draw) / whole : 0;
  }

  std::vector<size_t> all_;
  Resamples resamples_;
};

// The baseline of the least KL at the row's budget: all policies that read the
// context once but ours, the row itself left out. nullptr when there is none.
const ClosedLoopRow* BestBaseline(const ClosedLoopReport& report,
                                  const ClosedLoopRow& row,
                                  const Statistics& statistics) {
  const ClosedLoopRow* best = nullptr;
  double best_kl = 0;
  for (const ClosedLoopRow& other : report.rows) {
    if (&other == &row || other.budget != row.budget) continue;
    if (other.policy == "lookahead" || other.policy == "repeat") continue;
    const double kl = statistics.KlMean(other.windows);
    if (best == nullptr || kl < best_kl) {
      best = &other;
      best_kl = kl;
    }
  }
  return best;
}

Json FiguresAsJson(const Figures& figures) {
  return {{"kl_mean", figures.kl_mean},
          {"kl_mean_sure", figures.kl_mean_sure},
          {"kl_p99", figures.kl_p99},
          {"top1_agreement", figures.top1_agreement},
          {"first_divergence", figures.first_divergence},
          {"top5_overlap", figures.top5_overlap},
          {"ppl_ratio", figures.perplexity_ratio},
          {"ci95", IntervalAsJson(figures.kl_ci95)},
          {"top1_ci95", IntervalAsJson(figures.top1_ci95)}};
}

Json ByWindow(const Windows& windows, double Fidelity::*field) {
  Json json = Json::array();
  for (const Fidelity& window : windows) json.push_back(window.*field);
  return json;
}

Json HeldByWindow(const ClosedLoopRow& row) {
  Json json = Json::array();
  for (const HeldOfWindow& held : row.held) json.push_back(held.context_tokens);
  return json;
}

// A row's mean over the windows of some bytes, as a share of what keeping
// everything takes.
double ShareOfFull(const ClosedLoopRow& row, double HeldOfWindow::*bytes) {
  double sum = 0;
  for (const HeldOfWindow& held : row.held) {
    sum += held.*bytes / static_cast<double>(held.full_bytes);
  }
  return sum / static_cast<double>(row.held.size());
}

}  // namespace

Json EvalAsJson(const ClosedLoopReport& report) {
  const Statistics statistics(report.window_names.size());
  Json rows = Json::array();
  for (const ClosedLoopRow& row : report.rows) {
    Json json = {{"policy", row.policy},
                 {"budget", BudgetAsJson(row.budget)},
                 {"fidelity", FiguresAsJson(statistics.Of(row.windows))}};
    json["kl_by_window"] = ByWindow(row.windows, &Fidelity::kl_mean);
    json["top1_by_window"] = ByWindow(row.windows, &Fidelity::top1_agreement);
    json["held_tokens_by_window"] = HeldByWindow(row);
    json["held_share"] = ShareOfFull(row, &HeldOfWindow::mean_bytes);
    json["read_share"] = ShareOfFull(row, &HeldOfWindow::mean_read_bytes);
    const ClosedLoopRow* best = BestBaseline(report, row, statistics);
    json["best_baseline"] = best == nullptr ? Json() : Json(best->policy);
    json["kl_to_best"] =
        best == nullptr ? Json()
                        : Json(statistics.KlRatio(row.windows, best->windows));
    json["kl_to_best_ci95"] = best == nullptr
                                  ? Json()
                                  : IntervalAsJson(statistics.KlRatioCi95(
                                        row.windows, best->windows));
    rows.push_back(std::move(json));
  }
  return {
      {"windows", report.window_names},
      {"full_nll_by_window", ByWindow(report.noise_floor, &Fidelity::full_nll)},
      {"noise_floor", report.noise_floor.empty()
                          ? Json()
                          : FiguresAsJson(statistics.Of(report.noise_floor))},
      {"rows", std::move(rows)}};
}

std::string EvalAsText(const ClosedLoopReport& report,
                       const ClosedLoopOptions& options) {
  const Statistics statistics(report.window_names.size());
  std::string out =
      FormatCount(report.window_names.size(), "window") + " of " +
      FormatCount(options.context_tokens) + " and " +
      FormatCount(options.forced_tokens) + " tokens" +
      (options.continuation == Continuation::kReplay
           ? ", the context's own once more"
           : "") +
      "; the context is read " +
      (options.reading == PromptReading::kWhole ? "whole, then cut down"
                                                : "within the budget") +
      (options.budget_scope == BudgetScope::kContext
           ? "; what follows it comes on top of the budget"
           : "") +
      "\n\n";
  TextTable table({{"budget", Align::kRight},
                   {"policy"},
                   {"held", Align::kRight},
                   {"read", Align::kRight},
                   {"KL", Align::kRight},
                   {"95 %", Align::kRight},
                   {"KL where sure", Align::kRight},
                   {"top-1", Align::kRight},
                   {"same until", Align::kRight},
                   {"perplexity", Align::kRight},
                   {"KL to best other", Align::kRight},
                   {"95 %", Align::kRight}});
  for (const ClosedLoopRow& row : report.rows) {
    const Figures figures = statistics.Of(row.windows);
    const ClosedLoopRow* best = BestBaseline(report, row, statistics);
    table.AddRow(
        {FormatBudget(row.budget), row.policy,
         FormatPercent(ShareOfFull(row, &HeldOfWindow::mean_bytes)),
         FormatPercent(ShareOfFull(row, &HeldOfWindow::mean_read_bytes)),
         FormatSignificant(figures.kl_mean), FormatInterval(figures.kl_ci95),
         FormatSignificant(figures.kl_mean_sure),
         FormatPercent(figures.top1_agreement),
         FormatFixed(figures.first_divergence, 1),
         FormatFixed(figures.perplexity_ratio, 3) + "x",
         best == nullptr
             ? "-"
             : FormatFixed(statistics.KlRatio(row.windows, best->windows), 2),
         best == nullptr ? "-"
                         : FormatInterval(statistics.KlRatioCi95(
                               row.windows, best->windows))});
  }
  out += table.Print(TextTable::kNoWrap);
  if (!report.noise_floor.empty()) {
    out += "\nNoise floor (another 16-bit type, nothing evicted): KL " +
           FormatSignificant(statistics.KlMean(report.noise_floor)) + "\n";
  }
  if (report.interrupted) {
    out += "\nStopped on request: other windows were not measured.\n";
  }
  return out;
}

}  // namespace lkv::cli
