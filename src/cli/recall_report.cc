#include "cli/recall_report.h"

#include <optional>

#include "base/bootstrap.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "options/budget_text.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;
using Contexts = std::vector<ContextAnswers>;

// Share of right answers over the contexts drawn.
double RightOver(const Contexts& contexts, const std::vector<size_t>& draw) {
  uint64_t n_right = 0, n_questions = 0;
  for (size_t i : draw) {
    n_right += contexts[i].n_right;
    n_questions += contexts[i].n_questions;
  }
  return static_cast<double>(n_right) / static_cast<double>(n_questions);
}

// Of the policy's share of right answers less the full cache's, by contexts:
// the questions of one context share what was cut. None of one context.
std::optional<Interval> DifferenceCi95(const Contexts& full,
                                       const Contexts& policy) {
  if (full.size() < 2) return std::nullopt;
  return Resamples(full.size()).Ci95([&](const std::vector<size_t>& draw) {
    return RightOver(policy, draw) - RightOver(full, draw);
  });
}

bool Counts(const TaskRecall& recall) {
  return ScoreOf(recall.full).right >= kLeastFullScore;
}

std::string PointsText(double difference) {
  return FormatFixed(difference * 100, 1);
}

}  // namespace

Json RecallAsJson(const std::vector<TaskRecall>& report,
                  const RecallOptions& options) {
  Json tasks = Json::array();
  for (const TaskRecall& recall : report) {
    const RecallScore full = ScoreOf(recall.full);
    for (const RecallRow& row : recall.rows) {
      const RecallScore score = ScoreOf(row.contexts);
      tasks.push_back(
          {{"name", NameOf(recall.task)},
           {"counted", Counts(recall)},
           {"context_tokens", options.context_tokens},
           {"contexts", recall.full.size()},
           {"n", full.n_questions},
           {"budget", BudgetAsJson(row.budget)},
           {"policy", row.policy},
           {"full", full.right},
           {"score", score.right},
           {"difference", score.right - full.right},
           {"ci95", IntervalAsJson(DifferenceCi95(recall.full, row.contexts))},
           {"full_answer_tokens", full.answer_tokens},
           {"answer_tokens", score.answer_tokens}});
    }
  }
  return {{"tasks", std::move(tasks)}};
}

std::string RecallAsText(const std::vector<TaskRecall>& report,
                         const RecallOptions& options) {
  std::string out =
      "Recall: " + FormatCount(options.contexts_per_task, "context") +
      " of up to " + FormatCount(options.context_tokens) +
      " tokens for each task, " +
      (options.reading == PromptReading::kWhole ? "read whole, then cut down"
                                                : "read within the budget") +
      "; then the questions\n\n";
  TextTable table({{"task"},
                   {"n", Align::kRight},
                   {"full", Align::kRight},
                   {"budget", Align::kRight},
                   {"policy"},
                   {"right", Align::kRight},
                   {"points to full", Align::kRight},
                   {"95 %", Align::kRight},
                   {"answer tokens", Align::kRight},
                   {"full's", Align::kRight}});
  std::string weak;
  for (const TaskRecall& recall : report) {
    const std::string name(NameOf(recall.task));
    const RecallScore full = ScoreOf(recall.full);
    if (!Counts(recall)) weak += (weak.empty() ? "" : ", ") + name;
    for (const RecallRow& row : recall.rows) {
      const RecallScore score = ScoreOf(row.contexts);
      const auto ci95 = DifferenceCi95(recall.full, row.contexts);
      table.AddRow(
          {name + (Counts(recall) ? "" : " (not counted)"),
           std::to_string(full.n_questions), FormatPercent(full.right),
           FormatBudget(row.budget), row.policy, FormatPercent(score.right),
           PointsText(score.right - full.right),
           ci95 ? PointsText(ci95->low) + " to " + PointsText(ci95->high) : "-",
           FormatFixed(score.answer_tokens, 1),
           FormatFixed(full.answer_tokens, 1)});
    }
  }
  out += table.Print(TextTable::kNoWrap);
  if (!weak.empty()) {
    out += "\nNot counted, because the full cache is right in fewer than " +
           FormatPercent(kLeastFullScore) +
           " (the model is too weak for it): " + weak + "\n";
  }
  return out;
}

}  // namespace lkv::cli
