#include "eval/recall_tasks.h"

#include <gtest/gtest.h>

#include <string>

#include "testing/count_text.h"

namespace lkv {
namespace {

constexpr uint32_t kFiller = 60;

TEST(RecallTasksTest, TheSameSeedMakesTheSameText) {
  for (RecallTask task : AllRecallTasks()) {
    const RecallExample one = MakeRecallExample(task, 5, kFiller);
    const RecallExample again = MakeRecallExample(task, 5, kFiller);
    const RecallExample other = MakeRecallExample(task, 6, kFiller);
    EXPECT_EQ(one.context, again.context);
    EXPECT_EQ(one.questions[0].text, again.questions[0].text);
    EXPECT_NE(one.context, other.context);
  }
}

TEST(RecallTasksTest, NamesAreReadBack) {
  for (RecallTask task : AllRecallTasks()) {
    EXPECT_EQ(FindRecallTask(NameOf(task)), task);
  }
  EXPECT_EQ(FindRecallTask("haystack"), std::nullopt);
}

// What a model copies: the last line of a question stands in the context once,
// with the answer behind it.
TEST(RecallTasksTest, TheContextStatesEachAnswerOnce) {
  for (RecallTask task :
       {RecallTask::kNeedle, RecallTask::kMultikey, RecallTask::kRepetition}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto example = MakeRecallExample(task, seed, kFiller);
      for (const RecallQuestion& question : example.questions) {
        EXPECT_EQ(CountText(example.context, question.text), 1u);
        EXPECT_EQ(
            CountText(example.context, question.text + " " + question.answer),
            1u);
      }
    }
  }
}

TEST(RecallTasksTest, FactsAreAskedForInOtherWordsAndAnsweredInTheirOwn) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto example = MakeRecallExample(RecallTask::kFacts, seed, kFiller);
    ASSERT_EQ(example.questions.size(), 4u);
    for (const RecallQuestion& question : example.questions) {
      const size_t answer = question.text.rfind("Answer: ") + 8;
      const std::string statement = question.text.substr(answer);
      EXPECT_EQ(CountText(example.context, statement), 1u);
      EXPECT_EQ(
          CountText(example.context, statement + " " + question.answer + ".\n"),
          1u);
      EXPECT_EQ(CountText(example.context, "Question"), 0u);
    }
  }
}

TEST(RecallTasksTest, AVariableIsTwoLinksAway) {
  const auto example = MakeRecallExample(RecallTask::kVariable, 3, kFiller);
  ASSERT_EQ(example.questions.size(), 4u);
  for (const RecallQuestion& question : example.questions) {
    const std::string name =
        question.text.substr(question.text.rfind("Chain: ") + 7);
    const size_t space = question.answer.find(' ');
    const std::string middle = question.answer.substr(0, space);
    EXPECT_EQ(CountText(example.context, "Link: " + name + " " + middle + "\n"),
              1u);
    EXPECT_EQ(CountText(example.context, "Link: " + question.answer + "\n"),
              1u);
    EXPECT_EQ(CountText(example.context, name + " " + question.answer), 0u);
  }
}

TEST(RecallTasksTest, ADialogueAsksInItsLastTurnForItsFirst) {
  const auto example = MakeRecallExample(RecallTask::kDialogue, 3, 20);
  const size_t begin = example.context.find("User: ");
  EXPECT_GT(begin, 64u);  // behind the sinks' page, which never leaves
  const std::string first_turn =
      example.context.substr(begin, example.context.find('\n', begin) - begin);
  EXPECT_EQ(CountText(example.context, "User: "), 21u);
  ASSERT_EQ(example.questions.size(), 4u);
  for (const RecallQuestion& question : example.questions) {
    EXPECT_EQ(CountText(first_turn, question.answer), 1u);
    EXPECT_EQ(question.text.rfind("User: ", 0), 0u);
    EXPECT_EQ(CountText(question.text, "Assistant: "), 1u);
  }
}

// The newest tokens are what every policy keeps.
TEST(RecallTasksTest, NothingAskedForStandsAmongTheLastSentences) {
  for (RecallTask task : AllRecallTasks()) {
    if (task == RecallTask::kDialogue) continue;
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const auto example = MakeRecallExample(task, seed, 100);
      for (const RecallQuestion& question : example.questions) {
        std::string line = question.text + " " + question.answer;
        if (task == RecallTask::kVariable) line = "Link: " + question.answer;
        const size_t answer = line.rfind("Answer: ");
        if (answer != line.npos) line = line.substr(answer + 8);
        const size_t at = example.context.rfind(line);
        ASSERT_NE(at, example.context.npos);
        EXPECT_LE(at, example.context.size() * 9 / 10);
      }
    }
  }
}

// The page of the sinks never leaves.
TEST(RecallTasksTest, NothingAskedForStandsInTheFirstTwoSentences) {
  for (RecallTask task : {RecallTask::kNeedle, RecallTask::kMultikey}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const auto example = MakeRecallExample(task, seed, kLeastFiller);
      const size_t first = example.context.find('\n');
      const size_t second = example.context.find('\n', first + 1);
      for (const RecallQuestion& question : example.questions) {
        EXPECT_GT(example.context.find(question.text), second);
      }
    }
  }
}

TEST(RecallTasksTest, MoreNewestTokensWantMoreFiller) {
  EXPECT_EQ(LeastFiller(RecallTask::kNeedle, 0), kLeastFiller);
  EXPECT_EQ(LeastFiller(RecallTask::kNeedle, 128), 74u);
  EXPECT_EQ(LeastFiller(RecallTask::kNeedle, 256), 147u);
  EXPECT_EQ(LeastFiller(RecallTask::kDialogue, 128), kLeastFiller);
  EXPECT_EQ(LeastFiller(RecallTask::kDialogue, 600), 20u);
}

TEST(RecallTasksTest, AnExactAnswerIsTheWholeWord) {
  EXPECT_TRUE(AnswersExactly(" 4821.\n", "4821"));
  EXPECT_TRUE(AnswersExactly("4821", "4821"));
  EXPECT_TRUE(AnswersExactly("  Rosa, who", "Rosa"));
  EXPECT_FALSE(AnswersExactly(" 48213", "4821"));
  EXPECT_FALSE(AnswersExactly(" the 4821", "4821"));
  EXPECT_FALSE(AnswersExactly("\n4821", "4821"));
  EXPECT_FALSE(AnswersExactly("", "4821"));
  EXPECT_FALSE(AnswersExactly(" Rosalind", "Rosa"));
}

}  // namespace
}  // namespace lkv
