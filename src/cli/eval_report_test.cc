// What people and programs read of the suites of `lkv eval`.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/eval_report.h"
#include "cli/long_generation_report.h"
#include "cli/recall_report.h"

namespace lkv::cli {
namespace {

const Budget kQuarter = {.kind = Budget::Kind::kShare, .share = 0.25};
const Budget kTokens = {.kind = Budget::Kind::kTokens, .amount = 1024};

TEST(FidelityReportTest, FirstDivergenceIsTheMeanOverWindows) {
  ClosedLoopReport report;
  report.window_names = {"a at 0", "a at 9"};
  report.noise_floor.resize(2);
  report.rows.push_back({.policy = "lru", .budget = kTokens, .windows = {}});
  for (uint32_t tokens : {4u, 9u}) {
    Fidelity& window = report.rows[0].windows.emplace_back();
    window.first_divergence = tokens;
    window.kl_mean_sure = 0.25;
  }
  const Json document = EvalAsJson(report);
  const Json& row = document["rows"][0];
  EXPECT_EQ(row["fidelity"]["first_divergence"], 6.5);
  EXPECT_EQ(row["fidelity"]["kl_mean_sure"], 0.25);
  EXPECT_EQ(row["budget"], "1024");
  const std::string text = EvalAsText(report, {});
  EXPECT_NE(text.find("6.5"), std::string::npos);
  EXPECT_NE(text.find("1024"), std::string::npos);
}

TEST(FidelityReportTest, BytesAreSharesOfWhatKeepingEverythingTakes) {
  ClosedLoopReport report;
  report.window_names = {"a at 0", "a at 9"};
  report.rows = {
      {.policy = "lru",
       .budget = kQuarter,
       .windows = {{}, {}},
       .held = {
           {.mean_bytes = 250, .mean_read_bytes = 100, .full_bytes = 1000},
           {.mean_bytes = 150, .mean_read_bytes = 80, .full_bytes = 500}}}};
  const Json row = EvalAsJson(report)["rows"][0];
  EXPECT_DOUBLE_EQ(row["held_share"], 0.275);
  EXPECT_DOUBLE_EQ(row["read_share"], 0.13);
  const std::string text = EvalAsText(report, {});
  EXPECT_NE(text.find("27.5 %"), std::string::npos) << text;
  EXPECT_NE(text.find("13.0 %"), std::string::npos) << text;
}

TEST(FidelityReportTest, ANoiseFloorThatWasNotMeasuredIsNoNumber) {
  ClosedLoopReport report;
  report.window_names = {"a at 0"};
  report.rows = {{.policy = "lru", .budget = kTokens, .windows = {{}}}};
  EXPECT_TRUE(EvalAsJson(report)["noise_floor"].is_null());
  EXPECT_EQ(EvalAsText(report, {}).find("Noise floor"), std::string::npos);
  report.noise_floor.resize(1);
  EXPECT_EQ(EvalAsJson(report)["noise_floor"]["kl_mean"], 0);
  EXPECT_NE(EvalAsText(report, {}).find("Noise floor"), std::string::npos);
}

TEST(FidelityReportTest, SaysThatItWasStopped) {
  ClosedLoopReport report;
  report.window_names = {"a at 0"};
  report.rows = {{.policy = "lru", .budget = kTokens, .windows = {{}}}};
  EXPECT_EQ(EvalAsText(report, {}).find("Stopped"), std::string::npos);
  report.interrupted = true;
  EXPECT_NE(EvalAsText(report, {}).find("Stopped on request"),
            std::string::npos);
}

// The best other policy is one at the same budget.
TEST(FidelityReportTest, BudgetsAreNotMixedUp) {
  ClosedLoopReport report;
  report.window_names = {"a at 0"};
  report.noise_floor.resize(1);
  Fidelity near, far;
  near.kl_mean = 0.1;
  far.kl_mean = 0.4;
  report.rows = {{.policy = "lookahead", .budget = kQuarter, .windows = {near}},
                 {.policy = "lru", .budget = kQuarter, .windows = {far}},
                 {.policy = "fifo", .budget = kTokens, .windows = {near}}};
  const Json rows = EvalAsJson(report)["rows"];
  EXPECT_EQ(rows[0]["best_baseline"], "lru");
  EXPECT_EQ(rows[0]["kl_to_best"], 0.25);
  EXPECT_TRUE(rows[2]["best_baseline"].is_null());
}

// Of `n` contexts of four questions each, the full cache and the policy are
// right in so many of each.
TaskRecall SomeTask(RecallTask task, uint32_t n, uint32_t full_right,
                    uint32_t policy_right) {
  TaskRecall recall;
  recall.task = task;
  recall.full.assign(n,
                     {.n_questions = 4, .n_right = full_right, .n_tokens = 20});
  recall.rows.push_back(
      {.policy = "lru",
       .budget = kQuarter,
       .contexts = std::vector<ContextAnswers>(
           n, {.n_questions = 4, .n_right = policy_right, .n_tokens = 28})});
  return recall;
}

TEST(RecallReportTest, ScoresAreComparedInPairs) {
  TaskRecall recall = SomeTask(RecallTask::kFacts, 3, 4, 1);
  // Harder for both by as much: the difference is the same everywhere.
  recall.full[1].n_right = 3;
  recall.rows[0].contexts[1].n_right = 0;
  const Json document = RecallAsJson({recall}, {});
  const Json& task = document["tasks"][0];
  EXPECT_EQ(task["name"], "facts");
  EXPECT_EQ(task["n"], 12);
  EXPECT_EQ(task["contexts"], 3);
  EXPECT_NEAR(task["full"], 11.0 / 12, 1e-12);
  EXPECT_NEAR(task["score"], 2.0 / 12, 1e-12);
  EXPECT_NEAR(task["difference"], -0.75, 1e-12);
  EXPECT_NEAR(task["ci95"][0], -0.75, 1e-12);
  EXPECT_NEAR(task["ci95"][1], -0.75, 1e-12);
  EXPECT_EQ(task["full_answer_tokens"], 5);
  EXPECT_EQ(task["answer_tokens"], 7);
}

TEST(RecallReportTest, OneContextHasNoInterval) {
  const auto task = SomeTask(RecallTask::kFacts, 1, 4, 1);
  EXPECT_TRUE(RecallAsJson({task}, {})["tasks"][0]["ci95"].is_null());
}

TEST(RecallReportTest, OnlyTasksThatTheFullCacheCanDoCount) {
  const std::vector<TaskRecall> report = {
      SomeTask(RecallTask::kNeedle, 2, 3, 2),     // 75 %
      SomeTask(RecallTask::kVariable, 2, 2, 2)};  // 50 %
  const Json tasks = RecallAsJson(report, {})["tasks"];
  EXPECT_EQ(tasks[0]["counted"], true);
  EXPECT_EQ(tasks[1]["counted"], false);
  const std::string text = RecallAsText(report, {});
  EXPECT_EQ(text.find("needle (not counted)"), text.npos);
  EXPECT_NE(text.find("variable (not counted)"), text.npos);
  EXPECT_NE(text.find("(the model is too weak for it): variable\n"), text.npos);
  EXPECT_EQ(RecallAsText({report[0]}, {}).find("Not counted"), text.npos);
}

TEST(LongGenerationReportTest, TheFullCacheComesFirst) {
  LongGeneration text;
  text.text_name = "novel.txt";
  text.full.policy = "full";
  text.rows.resize(1);
  text.rows[0].policy = "lru";
  text.rows[0].budget = kTokens;
  text.rows[0].growth = 1.25;
  text.rows[0].resident_bytes_max = 3 << 20;
  text.rows[0].perplexity = 12.5;
  const Json rows = LongGenerationAsJson({text}, {})["generations"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["policy"], "full");
  EXPECT_EQ(rows[0]["budget"], "full");
  EXPECT_TRUE(rows[0]["growth"].is_null());
  EXPECT_EQ(rows[1]["text"], "novel.txt");
  EXPECT_EQ(rows[1]["growth"], 1.25);
  const std::string table = LongGenerationAsText({text}, {});
  EXPECT_LT(table.find("full"), table.find("lru"));
  EXPECT_NE(table.find("3.0 MiB"), table.npos);
  EXPECT_NE(table.find("12.50"), table.npos);
}

}  // namespace
}  // namespace lkv::cli
