#include "cli/tune_report.h"

#include <algorithm>
#include <cmath>

#include "base/byte_text.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "options/budget_text.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

std::string ShareText(double share) {
  return FormatBudget({.kind = Budget::Kind::kShare, .share = share});
}

std::string PercentRangeText(const std::optional<Interval>& interval) {
  if (!interval) return "-";
  return FormatFixed(interval->low * 100, 1) + " to " +
         FormatFixed(interval->high * 100, 1) + " %";
}

std::string_view EndName(TuningResult::End end) {
  switch (end) {
    case TuningResult::End::kDone:
      return "done";
    case TuningResult::End::kTimeLimit:
      return "time_limit";
    case TuningResult::End::kInterrupted:
      return "interrupted";
  }
  return {};
}

bool IsDefault(const TuningCandidate& candidate) {
  return std::all_of(candidate.choices.begin(), candidate.choices.end(),
                     [](uint32_t choice) { return choice == 0; });
}

const TuningTrial& BestOf(const TuneReport& report) {
  return report.result.trials[report.result.best];
}

CacheOptions BestOptions(const TuneReport& report) {
  CacheOptions options =
      OptionsOf(report.setup.space, report.setup.base, BestOf(report).candidate,
                report.setup.window_tokens());
  if (report.problem.goal.kind == TuningGoal::Kind::kMemory) {
    options.budget = report.memory;
  }
  return options;
}

std::string FrontierTable(const TuneReport& report) {
  TextTable table({{"settings"},
                   {"budget", Align::kRight},
                   {"memory", Align::kRight},
                   {"of full", Align::kRight},
                   {"at most", Align::kRight},
                   {"top-1", Align::kRight},
                   {"95 %", Align::kRight},
                   {"KL", Align::kRight},
                   {"95 %", Align::kRight},
                   {"note"}});
  for (const TunePoint& point : PointsOf(report)) {
    const TuningMeans& means = point.means;
    table.AddRow(
        {point.settings, ShareText(point.candidate.share), MemoryText(means),
         FormatPercent(means.resident_bytes / means.full_bytes),
         FormatBytes(means.resident_bytes_max), FormatPercent(means.agreement),
         PercentRangeText(point.agreement_ci95), FormatSignificant(means.kl),
         FormatInterval(point.kl_ci95),
         point.is_best        ? "best"
         : point.is_dominated ? "beaten"
                              : ""});
  }
  return table.Print(TextTable::kNoWrap);
}

std::string TrialsTable(const TuneReport& report) {
  TextTable table({{"settings"},
                   {"budget", Align::kRight},
                   {"n", Align::kRight},
                   {"KL ratio", Align::kRight},
                   {"memory", Align::kRight}});
  for (const TuningTrial& trial : report.result.trials) {
    if (IsDefault(trial.candidate) || !trial.kl_ratio) continue;
    const std::vector<uint32_t> windows =
        trial.WindowsOf(report.result.n_choosing);
    table.AddRow({DescribeChoices(report.setup.space, trial.candidate.choices),
                  ShareText(trial.candidate.share), FormatCount(windows.size()),
                  FormatFixed(*trial.kl_ratio, 2),
                  MemoryText(MeansOf(trial, windows))});
  }
  return table.Print(TextTable::kNoWrap);
}

Json PointAsJson(const TuneReport& report, const TunePoint& point) {
  const TuningMeans& means = point.means;
  return {{"settings", point.settings},
          {"budget", point.candidate.share},
          {"n", report.result.windows.size()},
          {"resident_bytes", means.resident_bytes},
          {"resident_bytes_max", means.resident_bytes_max},
          {"full_bytes", means.full_bytes},
          {"top1_agreement", means.agreement},
          {"top1_ci95", IntervalAsJson(point.agreement_ci95)},
          {"kl_mean", means.kl},
          {"ci95", IntervalAsJson(point.kl_ci95)},
          {"dominated", point.is_dominated},
          {"best", point.is_best}};
}

}  // namespace

std::vector<TunePoint> PointsOf(const TuneReport& report) {
  const TuningResult& result = report.result;
  const size_t n = result.windows.size();
  const Resamples resamples(n);
  std::vector<TunePoint> points;
  for (size_t place : result.frontier) {
    const TuningTrial& trial = result.trials[place];
    TunePoint point;
    point.candidate = trial.candidate;
    point.settings =
        DescribeChoices(report.setup.space, trial.candidate.choices);
    point.means = MeansOf(trial, result.windows);
    point.is_best = place == result.best;
    point.is_default = IsDefault(trial.candidate);
    const auto ci95 = [&](double TuningFigures::*field) {
      return resamples.Ci95([&](const std::vector<size_t>& draw) {
        double sum = 0;
        for (size_t i : draw) {
          sum += *trial.figures[result.windows[i]].*field;
        }
        return sum / static_cast<double>(n);
      });
    };
    if (n > 1) {
      point.kl_ci95 = ci95(&TuningFigures::kl_mean);
      point.agreement_ci95 = ci95(&TuningFigures::top1_agreement);
    }
    points.push_back(std::move(point));
  }
  for (TunePoint& point : points) {
    point.is_dominated =
        std::any_of(points.begin(), points.end(), [&](const TunePoint& other) {
          return other.means.resident_bytes <= point.means.resident_bytes &&
                 other.means.kl <= point.means.kl &&
                 (other.means.resident_bytes < point.means.resident_bytes ||
                  other.means.kl < point.means.kl);
        });
  }
  return points;
}

std::string MemoryText(const TuningMeans& means) {
  return FormatBytes(static_cast<uint64_t>(means.resident_bytes));
}

std::string GoalText(const TuneReport& report) {
  const TuningGoal& goal = report.problem.goal;
  return goal.kind == TuningGoal::Kind::kAgreement
             ? "the least memory with a top-1 agreement of " +
                   FormatPercent(goal.value)
             : "the least KL within " + FormatBudget(report.memory) +
                   (report.memory.kind == Budget::Kind::kTokens ? " tokens"
                                                                : "");
}

std::string BestText(const TuneReport& report) {
  const TuningTrial& best = BestOf(report);
  const TuningMeans means = MeansOf(best, report.result.windows);
  return DescribeChoices(report.setup.space, best.candidate.choices) +
         " at a budget of " + ShareText(best.candidate.share) + ": " +
         MemoryText(means) + " (" +
         FormatPercent(means.resident_bytes / means.full_bytes) +
         " of the full cache), top-1 " + FormatPercent(means.agreement) +
         ", KL " + FormatSignificant(means.kl) +
         ", n = " + FormatCount(report.result.windows.size(), "window");
}

std::string DuelText(const TuneReport& report) {
  if (!report.result.duel) {
    const bool has_tried = std::any_of(
        report.result.trials.begin(), report.result.trials.end(),
        [](const TuningTrial& trial) { return !IsDefault(trial.candidate); });
    if (!has_tried) return "There was no time to try other settings.";
    return "No other setting did better than the defaults where it was tried.";
  }
  const TuningDuel& duel = *report.result.duel;
  std::string text =
      "Challenger: " + DescribeChoices(report.setup.space, duel.challenger) +
      "; at " + ShareText(duel.share) + " its KL is " +
      FormatFixed(duel.kl_ratio, 2) +
      " times the defaults' with the same memory";
  const size_t n = report.result.windows.size();
  if (!duel.kl_ratio_ci95) {
    return text + ", but there are no " +
           FormatCount(TuningResult::kMinJudged) +
           " windows that had no part in its choice: the defaults stay.";
  }
  text += " (95 %: " + FormatFixed(duel.kl_ratio_ci95->low, 2) + " to " +
          FormatFixed(duel.kl_ratio_ci95->high, 2) +
          ", n = " + FormatCount(n, "window") +
          " that had no part in its choice): ";
  if (duel.is_won) return text + "it replaces the defaults.";
  return text + (duel.kl_ratio_ci95->high < 1
                     ? "but it needs more memory for the goal: the defaults "
                       "stay."
                     : "within noise: the defaults stay.");
}

std::string EffortText(const TuneReport& report) {
  const TuningResult& result = report.result;
  std::string text = FormatCount(result.n_tried) +
                     " settings and budgets tried in " +
                     FormatCount(result.n_runs, "run") + ", " +
                     FormatFixed(report.seconds, 0) + " s";
  switch (result.end) {
    case TuningResult::End::kDone:
      return text;
    case TuningResult::End::kTimeLimit:
      return text + "; the time limit cut the search short";
    case TuningResult::End::kInterrupted:
      return text + "; interrupted before it was done";
  }
  return text;
}

std::string WindowsText(const TuneReport& report) {
  return FormatCount(report.n_texts, "text") + ", " +
         FormatCount(report.window_names.size(), "window") + " of " +
         FormatCount(report.setup.context_tokens) + " and " +
         FormatCount(report.setup.forced_tokens) +
         " tokens; the context is read " +
         (report.setup.base.reading == PromptReading::kWhole
              ? "whole, then cut down"
              : "within the budget");
}

std::string TuneAsText(const TuneReport& report) {
  std::string out = WindowsText(report) + "\n" + EffortText(report) + "\n\n" +
                    "Goal: " + GoalText(report) + "\n" +
                    (report.result.is_reached ? "Best: " : "Nearest: ") +
                    BestText(report) + "\n" + DuelText(report) + "\n\n" +
                    "Memory against predictions, means of " +
                    FormatCount(report.result.windows.size(), "window") +
                    " (beaten: another has less memory and less KL)\n\n" +
                    FrontierTable(report);
  const std::string trials = TrialsTable(report);
  if (std::count(trials.begin(), trials.end(), '\n') > 2) {
    out +=
        "\nTried beside the defaults: KL over theirs with the same memory, "
        "on n windows\n\n" +
        trials;
  }
  if (report.result.is_reached) {
    out += '\n';
    out += TuneAsConfig(report);
  }
  return out;
}

Json TuneAsJson(const TuneReport& report) {
  const TuningResult& result = report.result;
  Json frontier = Json::array();
  Json best;
  for (const TunePoint& point : PointsOf(report)) {
    frontier.push_back(PointAsJson(report, point));
    if (point.is_best) best = frontier.back();
  }
  Json trials = Json::array();
  for (const TuningTrial& trial : result.trials) {
    if (!trial.kl_ratio) continue;
    const std::vector<uint32_t> windows = trial.WindowsOf(result.n_choosing);
    const TuningMeans means = MeansOf(trial, windows);
    trials.push_back({{"settings", DescribeChoices(report.setup.space,
                                                   trial.candidate.choices)},
                      {"budget", trial.candidate.share},
                      {"n", windows.size()},
                      {"kl_ratio", *trial.kl_ratio},
                      {"kl_mean", means.kl},
                      {"top1_agreement", means.agreement},
                      {"resident_bytes", means.resident_bytes}});
  }
  Json duel;
  if (result.duel) {
    duel = {{"settings",
             DescribeChoices(report.setup.space, result.duel->challenger)},
            {"budget", result.duel->share},
            {"n", result.windows.size()},
            {"kl_ratio", result.duel->kl_ratio},
            {"kl_ratio_ci95", IntervalAsJson(result.duel->kl_ratio_ci95)},
            {"won", result.duel->is_won}};
  }
  Json windows = Json::array();
  for (uint32_t w : result.windows) windows.push_back(report.window_names[w]);
  return {{"goal", GoalText(report)},
          {"reached", result.is_reached},
          {"end", EndName(result.end)},
          {"tried", result.n_tried},
          {"runs", result.n_runs},
          {"seconds", report.seconds},
          {"best", std::move(best)},
          {"config", result.is_reached ? Json(TuneAsConfig(report)) : Json()},
          {"challenger", std::move(duel)},
          {"windows", std::move(windows)},
          {"frontier", std::move(frontier)},
          {"trials", std::move(trials)}};
}

std::string TuneAsConfig(const TuneReport& report) {
  return ConfigBlock(BestOptions(report),
                     {"lkv tune: " + GoalText(report), BestText(report)});
}

}  // namespace lkv::cli
