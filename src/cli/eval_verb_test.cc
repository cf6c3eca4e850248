// `lkv eval` with a real model.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/testing_runs.h"
#include "testing/child_process.h"
#include "testing/test_paths.h"

namespace lkv::cli {
namespace {

using nlohmann::json;

TEST(EvalTest, RowsHoldEveryFieldOfTheInterface) {
  const auto document = RunJson(
      {"eval", "-f", LKV_SOURCE_DIR "/LICENSE", "--windows", "2", "--context",
       "400", "--forced", "8", "--budget", "75%", "--policies",
       "streaming,random,lookahead", "--set", "recent_tokens=32"});
  EXPECT_EQ(document["windows"].size(), 2u);
  EXPECT_LT(document["noise_floor"]["kl_mean"], 0.01);
  ASSERT_EQ(document["full_nll_by_window"].size(), 2u);
  for (const auto& nll : document["full_nll_by_window"]) {
    EXPECT_GT(nll, 0);
    EXPECT_LT(nll, 6) << "nats; a guess among 49,152 tokens costs 10.8";
  }
  const auto& rows = document["rows"];
  ASSERT_EQ(rows.size(), 3u);
  for (const auto& row : rows) {
    EXPECT_EQ(row["budget"], 0.75);
    EXPECT_GT(row["fidelity"]["kl_mean"], 0);
    EXPECT_EQ(row["fidelity"]["ci95"].size(), 2u);
    EXPECT_GE(row["fidelity"]["first_divergence"], 0);
    EXPECT_LE(row["fidelity"]["first_divergence"], 8);
    EXPECT_GE(row["fidelity"]["kl_mean_sure"], 0);
    ASSERT_EQ(row["kl_by_window"].size(), 2u);
    const double kl_sum = row["kl_by_window"][0].get<double>() +
                          row["kl_by_window"][1].get<double>();
    EXPECT_NEAR(row["fidelity"]["kl_mean"].get<double>(), kl_sum / 2, 1e-9);
    EXPECT_EQ(row["top1_by_window"].size(), 2u);
    // 75 % of 408 tokens is 306, pages' own bytes and an open page included.
    for (const auto& held : row["held_tokens_by_window"]) {
      EXPECT_GT(held, 250);
      EXPECT_LT(held, 306);
    }
    EXPECT_NE(row["best_baseline"], row["policy"]);
    EXPECT_NE(row["best_baseline"], "lookahead");
  }
}

TEST(EvalTest, AContextReadWithinTheBudgetIsCutWhileItIsRead) {
  Words words = {"eval",      "-f",       LKV_SOURCE_DIR "/LICENSE",
                 "--windows", "1",        "--context",
                 "600",       "--forced", "4",
                 "--budget",  "50%",      "--policies",
                 "streaming", "--read",   "budget"};
  const ChildResult within = RunLkv(WithModel(words));
  EXPECT_EQ(within.exit_code, 0) << within.err;
  EXPECT_NE(within.out.find("is read within the budget"), std::string::npos);
  Words by_key = words;
  by_key[by_key.size() - 2] = "--set";
  by_key.back() = "read=budget";
  EXPECT_EQ(RunLkv(WithModel(by_key)).out, within.out);
  words.back() = "whole";
  const ChildResult whole = RunLkv(WithModel(words));
  EXPECT_NE(whole.out.find("is read whole, then cut down"), std::string::npos);
  EXPECT_NE(whole.out, within.out);
}

TEST(EvalTest, AReplayForcesTheContextsOwnTokens) {
  Words words = {"eval",          "-f",       LKV_SOURCE_DIR "/LICENSE",
                 "--windows",     "1",        "--context",
                 "600",           "--forced", "64",
                 "--budget",      "50%",      "--policies",
                 "streaming",     "--set",    "recent_tokens=32",
                 "--continuation"};
  const auto run = [&](const std::string& continuation) {
    Words with = words;
    with.push_back(continuation);
    return RunJson(with);
  };
  const auto next = run("next"), replay = run("replay");
  EXPECT_EQ(next["windows"], replay["windows"]);
  const double next_nll = next["full_nll_by_window"][0];
  const double replay_nll = replay["full_nll_by_window"][0];
  EXPECT_LT(replay_nll, 0.5 * next_nll)
      << "a model that has the context can copy it";
  // Streaming has thrown away what is to be copied.
  EXPECT_GT(replay["rows"][0]["fidelity"]["kl_mean"],
            next["rows"][0]["fidelity"]["kl_mean"]);
}

TEST(EvalTest, WithTiersWhatHasLeftIsStillSeen) {
  Words words = {"eval",
                 "-f",
                 LKV_SOURCE_DIR "/LICENSE",
                 "--windows",
                 "1",
                 "--context",
                 "1000",
                 "--forced",
                 "32",
                 "--budget",
                 "50%",
                 "--policies",
                 "streaming",
                 "--continuation",
                 "replay",
                 "--tiers"};
  const auto run = [&](const std::string& tiers) {
    Words with = words;
    with.push_back(tiers);
    return RunJson(with)["rows"][0];
  };
  const auto on = run("on"), off = run("off");
  EXPECT_LT(on["fidelity"]["kl_mean"],
            0.2 * off["fidelity"]["kl_mean"].get<double>());
  EXPECT_LE(on["held_share"], 0.5 * 1.02);  // metadata counts, too
  EXPECT_LT(on["read_share"], on["held_share"]);
}

TEST(EvalTest, AContextTooShortToBeReplayedIsRefused) {
  const ChildResult result = RunLkv(WithModel(
      {"eval", "-f", LKV_SOURCE_DIR "/LICENSE", "--windows", "1", "--context",
       "90", "--forced", "60", "--continuation", "replay"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("a context of 90 tokens has no 61 tokens behind "
                            "its first third to replay"),
            std::string::npos)
      << result.err;
}

TEST(EvalTest, TasksHoldEveryFieldOfTheInterface) {
  const auto document = RunJson(
      {"eval", "--suite", "recall", "--tasks", "repetition,variable",
       "--examples", "2", "--context", "420", "--budget", "50%,200",
       "--policies", "streaming,lookahead", "--set", "recent_tokens=32"});
  EXPECT_FALSE(document.contains("rows"));
  const auto& tasks = document["tasks"];
  ASSERT_EQ(tasks.size(), 8u);  // tasks, budgets, policies
  for (const auto& task : tasks) {
    EXPECT_EQ(task["context_tokens"], 420);
    EXPECT_EQ(task["contexts"], 2);
    EXPECT_EQ(task["n"], task["name"] == "variable" ? 8 : 6);
    EXPECT_EQ(task["ci95"].size(), 2u);
    EXPECT_EQ(task["counted"], task["full"] >= 0.6);
    EXPECT_NEAR(task["difference"],
                task["score"].get<double>() - task["full"].get<double>(), 1e-9);
    EXPECT_GE(task["answer_tokens"], 0);
    EXPECT_GE(task["full_answer_tokens"], 0);
  }
  EXPECT_EQ(tasks[0]["name"], "repetition");
  EXPECT_EQ(tasks[0]["budget"], 0.5);
  EXPECT_EQ(tasks[0]["policy"], "streaming");
  EXPECT_EQ(tasks[1]["policy"], "lookahead");
  EXPECT_EQ(tasks[2]["budget"], "200");
}

TEST(EvalTest, ATaskThatTheModelCannotDoIsShownButNotCounted) {
  const ChildResult result = RunLkv(
      WithModel({"eval", "--suite", "recall", "--tasks", "variable",
                 "--examples", "1", "--context", "420", "--budget", "50%",
                 "--policies", "streaming", "--set", "recent_tokens=32"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("variable (not counted)"), std::string::npos);
  EXPECT_NE(result.out.find("the model is too weak for it"), std::string::npos);
}

TEST(EvalTest, AllSuitesStandInOneDocument) {
  const auto document = RunJson({"eval",
                                 "--suite",
                                 "all",
                                 "-f",
                                 LKV_SOURCE_DIR "/LICENSE",
                                 "--windows",
                                 "1",
                                 "--forced",
                                 "4",
                                 "--tasks",
                                 "needle",
                                 "--examples",
                                 "1",
                                 "--context",
                                 "320",
                                 "--generate",
                                 "16",
                                 "--budget",
                                 "160",
                                 "--policies",
                                 "fifo",
                                 "--set",
                                 "recent_tokens=32"});
  EXPECT_EQ(document["interrupted"], false);
  ASSERT_EQ(document["rows"].size(), 1u);
  EXPECT_EQ(document["rows"][0]["budget"], "160");
  ASSERT_EQ(document["tasks"].size(), 1u);
  EXPECT_EQ(document["tasks"][0]["ci95"], nullptr);  // of one context
  const auto& generations = document["generations"];
  ASSERT_EQ(generations.size(), 2u);
  EXPECT_EQ(generations[0]["policy"], "full");
  EXPECT_EQ(generations[0]["growth"], nullptr);
  EXPECT_EQ(generations[1]["policy"], "fifo");
  EXPECT_EQ(generations[1]["budget"], "160");
  for (const auto& row : generations) {
    EXPECT_EQ(row["generated_tokens"], 16);
    EXPECT_GT(row["resident_bytes_max"], 0);
    EXPECT_GT(row["perplexity"], 1);
    EXPECT_GE(row["repeated_4grams"], 0);
    EXPECT_LE(row["distinct_4grams"], 1);
    EXPECT_LE(row["common_tokens"], 16);
  }
  EXPECT_GT(generations[1]["evicted_tokens"], 0);
  EXPECT_GT(generations[1]["growth"], 0);
}

TEST(EvalTest, WindowsThatWereFinishedStandWhenItIsStopped) {
  ChildOptions options;
  options.interrupt_at = "3 / 12  runs";
  const ChildResult result = RunLkv(
      WithModel({"eval", "-f", LKV_SOURCE_DIR "/LICENSE", "--windows", "4",
                 "--context", "512", "--forced", "64", "--budget", "256",
                 "--policies", "fifo", "--set", "recent_tokens=32", "--json"}),
      options);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  const json document = json::parse(result.out, nullptr, false);
  EXPECT_EQ(document["interrupted"], true);
  const size_t n_windows = document["windows"].size();
  EXPECT_GE(n_windows, 1u);
  EXPECT_LT(n_windows, 4u);
  EXPECT_EQ(document["rows"][0]["kl_by_window"].size(), n_windows);
  EXPECT_EQ(document["rows"][0]["held_tokens_by_window"].size(), n_windows);
  EXPECT_EQ(document["full_nll_by_window"].size(), n_windows);
}

TEST(EvalTest, SuitesThatWereFinishedStandWhenAnotherIsStopped) {
  Words words = {"eval",
                 "--suite",
                 "recall,generation",
                 "-f",
                 LKV_SOURCE_DIR "/LICENSE",
                 "--tasks",
                 "needle",
                 "--examples",
                 "1",
                 "--context",
                 "320",
                 "--generate",
                 "4000",
                 "--budget",
                 "160",
                 "--policies",
                 "fifo",
                 "--set",
                 "recent_tokens=32",
                 "--json"};
  ChildOptions options;
  options.interrupt_at = "/ 16,000  tokens";
  const ChildResult late = RunLkv(WithModel(words), options);
  EXPECT_EQ(late.exit_code, 130) << late.err;
  json document = json::parse(late.out, nullptr, false);
  EXPECT_EQ(document["tasks"].size(), 1u);
  EXPECT_EQ(document["interrupted"], true);
  EXPECT_FALSE(document.contains("generations"));

  words[2] = "generation";
  const ChildResult early = RunLkv(WithModel(words), options);
  EXPECT_EQ(early.exit_code, 130) << early.err;
  document = json::parse(early.out, nullptr, false);
  EXPECT_EQ(document["error"]["code"], "interrupted");
}

TEST(EvalTest, SuitesThatWereFinishedStandWhenAnotherFails) {
  const ChildResult result = RunLkv(
      WithModel({"eval", "--suite", "recall,generation", "-f",
                 LKV_SOURCE_DIR "/.clang-format", "--tasks", "needle",
                 "--examples", "1", "--context", "320", "--budget", "160",
                 "--policies", "fifo", "--set", "recent_tokens=32", "--json"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("fewer than the 320 to go on from"),
            std::string::npos)
      << result.err;
  const json document = json::parse(result.out, nullptr, false);
  EXPECT_EQ(document["tasks"].size(), 1u);
}

TEST(EvalTest, ABudgetOfTheContextLeavesItAloneWhileTokensFollow) {
  Words words = {"eval",        "-f",       LKV_SOURCE_DIR "/LICENSE",
                 "--windows",   "1",        "--context",
                 "600",         "--forced", "200",
                 "--budget",    "50%",      "--policies",
                 "streaming",   "--set",    "recent_tokens=32",
                 "--budget-of", "context"};
  const auto of_context = RunJson(words)["rows"][0];
  words.back() = "window";
  const auto of_window = RunJson(words)["rows"][0];
  // 300 tokens of the context, its pages' own bytes and an open page included;
  // 400 of the window, of which the 200 that follow take their part later.
  EXPECT_GT(of_context["held_tokens_by_window"][0], 240);
  EXPECT_LT(of_context["held_tokens_by_window"][0], 300);
  EXPECT_GT(of_window["held_tokens_by_window"][0], 340);
  EXPECT_LT(of_window["held_tokens_by_window"][0], 400);
  EXPECT_LT(of_context["fidelity"]["kl_mean"].get<double>(),
            of_window["fidelity"]["kl_mean"].get<double>());
}

TEST(EvalTest, PoliciesMaySeeEveryQueryOfTheContext) {
  Words words = {"eval",      "-f",       LKV_SOURCE_DIR "/LICENSE",
                 "--windows", "1",        "--context",
                 "600",       "--forced", "8",
                 "--budget",  "50%",      "--policies",
                 "fifo,h2o",  "--set",    "recent_tokens=32",
                 "--observe", "sampled"};
  const auto sampled = RunJson(words)["rows"];
  words.back() = "all";
  const auto all = RunJson(words)["rows"];
  EXPECT_EQ(all[0]["kl_by_window"], sampled[0]["kl_by_window"]);
  EXPECT_NE(all[1]["kl_by_window"], sampled[1]["kl_by_window"]);
}

TEST(EvalTest, BadInputIsNamed) {
  const TempFolder folder;
  std::ofstream(folder.File("empty"));
  for (const auto& [words, says] : std::vector<std::pair<Words, std::string>>{
           {{"eval"}, "--file: is missing"},
           {{"eval", "-f", folder.File("empty")}, "empty: is empty"},
           {{"eval", "-f",
             LKV_SOURCE_DIR "/LICENSE," LKV_SOURCE_DIR "/docs/../LICENSE"},
            "is given twice"},
           {{"eval", "-f", LKV_SOURCE_DIR "/LICENSE", "--context", "9000"},
            "fewer than a window"},
           {{"eval", "-f", LKV_SOURCE_DIR "/LICENSE", "--read", "twice"},
            "--read"},
           {{"eval", "-f", LKV_SOURCE_DIR "/LICENSE", "--observe", "none"},
            "--observe"},
           {{"eval", "-f", LKV_SOURCE_DIR "/LICENSE", "--budget-of", "text"},
            "--budget-of"},
           {{"eval", "-f", LKV_SOURCE_DIR "/LICENSE", "--context", "200",
             "--read", "budget", "--budget-of", "context"},
            "read it whole"},
           {{"eval", "-f", LKV_SOURCE_DIR "/LICENSE", "--budget", "full"},
            "full evicts nothing"},
           {{"eval", "-f", LKV_SOURCE_DIR "/LICENSE", "--budget", "lots"},
            "--budget: "},
           {{"eval", "--suite", "recal"},
            "--suite: 'recal' is none of fidelity | recall | generation"},
           {{"eval", "--suite", "recall,generation"}, "--file: is missing"},
           {{"eval", "--suite", "recall", "--tasks", "needle,haystack"},
            "--tasks: 'haystack' is none of needle | multikey"},
           {{"eval", "--suite", "recall", "--context", "100"},
            "too few for the task needle"},
           {{"eval", "--suite", "recall", "--budget", "8"}, "budget"},
           {{"eval", "--suite", "recall", "--policies", "repeat", "--read",
             "budget"},
            "repeat needs the whole context"},
           {{"eval", "--suite", "generation", "-f", LKV_SOURCE_DIR "/LICENSE",
             "--policies", "repeat"},
            "repeat reads a context twice"},
           {{"eval", "--suite", "generation", "-f", LKV_SOURCE_DIR "/LICENSE",
             "--generate", "9000"},
            "8192"},
           {{"eval", "-f", LKV_SOURCE_DIR "/LICENSE", "--context", "200",
             "--policies", "best"},
            "best"}}) {
    const ChildResult result = RunLkv(WithModel(words));
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace lkv::cli
