// Recall tasks on the real model, in short contexts.
#include "eval/recall.h"

#include <gtest/gtest.h>

#include <memory>

#include "testing/test_engine.h"

namespace lkv {
namespace {

RecallOptions ShortOptions() {
  RecallOptions options;
  options.tasks = {RecallTask::kDialogue};
  options.policies = {"streaming"};
  options.budgets = {{.kind = Budget::Kind::kTokens, .amount = 160}};
  options.context_tokens = 480;
  options.contexts_per_task = 2;
  options.cache.recent_tokens = 32;
  return options;
}

TEST(RecallTest, TheFullCacheAnswersWhatACutOneHasLost) {
  RecallOptions options = ShortOptions();
  options.policies = {"streaming", "repeat"};
  uint64_t n_done = 0, n_all = 0;
  const auto report = MeasureRecall(SharedEngine(), options,
                                    [&](uint64_t done, uint64_t all) {
                                      EXPECT_EQ(done, n_done + 1);
                                      n_done = done;
                                      n_all = all;
                                    },
                                    {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(n_done, 6u);  // two contexts, each under full and two policies
  EXPECT_EQ(n_all, 6u);
  ASSERT_EQ(report->size(), 1u);
  const TaskRecall& dialogue = report->front();
  ASSERT_EQ(dialogue.full.size(), 2u);
  const RecallScore full = ScoreOf(dialogue.full);
  EXPECT_EQ(full.n_questions, 8u);
  EXPECT_GE(full.right, kLeastFullScore);
  EXPECT_GT(full.answer_tokens, 0);
  EXPECT_LE(full.answer_tokens, options.answer_tokens);
  ASSERT_EQ(dialogue.rows.size(), 2u);
  EXPECT_EQ(dialogue.rows[0].policy, "streaming");
  EXPECT_EQ(dialogue.rows[1].policy, "repeat");
  for (const RecallRow& row : dialogue.rows) {
    EXPECT_EQ(row.contexts.size(), 2u);
    EXPECT_EQ(ScoreOf(row.contexts).n_questions, 8u);
  }
  // The first turn is neither a sink nor recent.
  EXPECT_LT(ScoreOf(dialogue.rows[0].contexts).right, full.right);
}

TEST(RecallTest, ABudgetThatHoldsEverythingChangesNoAnswer) {
  RecallOptions options = ShortOptions();
  options.policies = {"lookahead"};
  options.budgets = {{.kind = Budget::Kind::kTokens, .amount = 4096}};
  options.contexts_per_task = 1;
  options.reading = PromptReading::kWithinBudget;
  const auto report = MeasureRecall(SharedEngine(), options, {}, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  const TaskRecall& dialogue = report->front();
  EXPECT_EQ(dialogue.full[0].n_right, dialogue.rows[0].contexts[0].n_right);
  EXPECT_EQ(dialogue.full[0].n_tokens, dialogue.rows[0].contexts[0].n_tokens);
}

TEST(RecallTest, OtherSeedsAskOtherQuestions) {
  RecallOptions options = ShortOptions();
  options.contexts_per_task = 1;
  options.policies = {};
  options.tasks = {RecallTask::kRepetition};
  std::vector<uint32_t> lengths;
  for (uint64_t seed : {1, 2, 3, 4}) {
    options.seed = seed;
    const auto report = MeasureRecall(SharedEngine(), options, {}, {});
    ASSERT_TRUE(report.ok()) << report.status().message();
    lengths.push_back(report->front().full[0].n_tokens);
  }
  EXPECT_NE(lengths, std::vector<uint32_t>(4, lengths[0]));
}

// As few sentences as are allowed, as this tokenizer cuts them.
TEST(RecallTest, TheNewestTokensHoldNothingAskedFor) {
  const Tokenizer& tokenizer = SharedEngine().tokenizer();
  for (RecallTask task : AllRecallTasks()) {
    for (uint32_t n_recent : {32u, 128u, 300u}) {
      for (uint64_t seed = 0; seed < 10; ++seed) {
        const RecallExample example =
            MakeRecallExample(task, seed, LeastFiller(task, n_recent));
        for (const RecallQuestion& question : example.questions) {
          // A variable is asked for as one text and stated in two.
          const std::string last =
              question.answer.substr(question.answer.rfind(' ') + 1);
          const size_t at = example.context.rfind(last);
          ASSERT_NE(at, std::string::npos);
          if (at != example.context.find(last)) continue;  // filler has it, too
          const size_t line_end = example.context.find('\n', at);
          const std::string rest = example.context.substr(line_end);
          EXPECT_GE(tokenizer
                        .Tokenize(rest, Tokenizer::Start::kNone,
                                  Tokenizer::Special::kAsText)
                        .size(),
                    n_recent)
              << NameOf(task) << " " << seed;
        }
      }
    }
  }
}

TEST(RecallTest, WhatCannotBeMeasuredIsNamed) {
  RecallOptions options = ShortOptions();
  options.context_tokens = 100;
  auto report = MeasureRecall(SharedEngine(), options, {}, {});
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(report.status().message().find("too few for the task dialogue"),
            std::string::npos);
  // 33 sentences, of which the last five do not hold the newest 128 tokens.
  options = ShortOptions();
  options.tasks = {RecallTask::kNeedle};
  options.cache.recent_tokens = 128;
  report = MeasureRecall(SharedEngine(), options, {}, {});
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(report.status().message().find("128 newest tokens"),
            std::string::npos)
      << report.status().message();
  options = ShortOptions();
  options.policies = {"best"};
  report = MeasureRecall(SharedEngine(), options, {}, {});
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  options = ShortOptions();
  options.budgets[0].amount = 1;
  report = MeasureRecall(SharedEngine(), options, {}, {});
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(report.status().message().find("budget"), std::string::npos);
}

TEST(RecallTest, ItCanBeCancelled) {
  const auto report =
      MeasureRecall(SharedEngine(), ShortOptions(), {}, [] { return true; });
  EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
}

TEST(ScoreOfTest, QuestionsCountAlikeWhateverContextTheyAreOf) {
  const RecallScore score =
      ScoreOf({{.n_questions = 1, .n_right = 1, .n_tokens = 2},
               {.n_questions = 3, .n_right = 0, .n_tokens = 10}});
  EXPECT_EQ(score.n_questions, 4u);
  EXPECT_EQ(score.right, 0.25);
  EXPECT_EQ(score.answer_tokens, 3);
  EXPECT_EQ(ScoreOf({}).n_questions, 0u);
}

}  // namespace
}  // namespace lkv
