// Prompts that are read whole, once or twice, and cut down at their end.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "testing/random_model.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

class PromptReadingTest : public testing::Test {
 protected:
  static constexpr uint32_t kPrompt = 700;
  static constexpr uint32_t kContext = 2048;

  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>();
    RandomModelOptions model = RandomModelOf("llama");
    model.context_tokens = kContext;
    WriteRandomModel(folder_->File("model.gguf"), model);
    EngineOptions options;
    options.model_path = folder_->File("model.gguf");
    options.n_threads = 2;
    Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = *std::move(engine);
  }
  static void TearDownTestSuite() {
    engine_.reset();
    folder_.reset();
  }

  static std::vector<int32_t> Prompt(uint32_t n = kPrompt) {
    std::vector<int32_t> tokens(n);
    for (uint32_t i = 0; i < n; ++i) {
      tokens[i] = static_cast<int32_t>(i * 7919 % 311);
    }
    return tokens;
  }
  static SequenceOptions Options(PolicyName policy, PromptReading reading) {
    SequenceOptions options;
    options.prompt_tokens = kPrompt;
    options.max_new_tokens = 60;
    options.cache.policy = policy;
    options.cache.reading = reading;
    options.cache.budget = {Budget::Kind::kTokens, 1.0, 400};
    return options;
  }
  static std::unique_ptr<Sequence> Start(const SequenceOptions& options) {
    auto sequence = engine_->Start(options);
    EXPECT_TRUE(sequence.ok()) << sequence.status().message();
    return *std::move(sequence);
  }
  static std::vector<float> LogitsOf(const Sequence& sequence) {
    return {sequence.logits().begin(), sequence.logits().end()};
  }

  static std::unique_ptr<TempFolder> folder_;
  static std::unique_ptr<Engine> engine_;
};

std::unique_ptr<TempFolder> PromptReadingTest::folder_;
std::unique_ptr<Engine> PromptReadingTest::engine_;

TEST_F(PromptReadingTest, WholeIsTheFullCacheUntilThePromptsEnd) {
  SequenceOptions options =
      Options(PolicyName::kLookahead, PromptReading::kWhole);
  auto full_options = options;
  full_options.cache.policy = PolicyName::kFull;
  full_options.cache.budget = {};
  const auto full = Start(full_options);
  ASSERT_TRUE(full->Prefill(Prompt(), {}, {}).ok());
  const auto whole = Start(options);
  ASSERT_TRUE(whole->Prefill(Prompt(), {}, {}).ok());
  EXPECT_EQ(LogitsOf(*whole), LogitsOf(*full));

  options.cache.reading = PromptReading::kWithinBudget;
  const auto within = Start(options);
  ASSERT_TRUE(within->Prefill(Prompt(), {}, {}).ok());
  EXPECT_NE(LogitsOf(*within), LogitsOf(*full));

  // From there on it keeps to the same budget.
  const SequenceStats stats = whole->stats();
  EXPECT_EQ(stats.budget_bytes, within->stats().budget_bytes);
  EXPECT_GT(stats.resident_bytes_max, stats.budget_bytes);
  for (int i = 0; i < 60; ++i) {
    ASSERT_LE(whole->stats().resident_bytes, stats.budget_bytes) << i;
    ASSERT_TRUE(whole->Decode(i).ok());
  }
}

TEST_F(PromptReadingTest, OnlyTheFirstPromptIsReadWhole) {
  SequenceOptions options =
      Options(PolicyName::kLookahead, PromptReading::kWhole);
  options.max_tokens = 1500;
  const auto sequence = Start(options);
  ASSERT_TRUE(sequence->Prefill(Prompt(), {}, {}).ok());
  const uint64_t most = sequence->stats().resident_bytes_max;
  ASSERT_TRUE(sequence->Prefill(Prompt(60), {}, {}).ok());
  EXPECT_EQ(sequence->stats().resident_bytes_max, most);
  EXPECT_LE(sequence->stats().resident_bytes, sequence->stats().budget_bytes);
}

// Nothing has to leave: not an error once all has been read.
TEST_F(PromptReadingTest, ABudgetAboveTheTextKeepsEverything) {
  for (const PolicyName policy :
       {PolicyName::kLookahead, PolicyName::kRepeat}) {
    SequenceOptions options = Options(policy, PromptReading::kWhole);
    for (const Budget budget :
         {Budget{Budget::Kind::kTokens, 1.0, 2000},
          Budget{Budget::Kind::kShare, 1.0, 0}, Budget{}}) {
      options.cache.budget = budget;
      options.max_tokens = 1500;
      const auto sequence = Start(options);
      const Status read = sequence->Prefill(Prompt(), {}, {});
      ASSERT_TRUE(read.ok()) << read.message();
      ASSERT_TRUE(sequence->Decode(1).ok());
      EXPECT_EQ(sequence->stats().evicted_tokens, 0u);
    }
  }
}

TEST_F(PromptReadingTest, TheBudgetIsToldBeforeItIsKept) {
  SequenceOptions options =
      Options(PolicyName::kLookahead, PromptReading::kWhole);
  options.cache.budget = {Budget::Kind::kShare, 0.01, 0};  // below the smallest
  const auto whole = Start(options);
  options.cache.reading = PromptReading::kWithinBudget;
  EXPECT_EQ(whole->stats().budget_bytes, Start(options)->stats().budget_bytes);
  ASSERT_TRUE(whole->Prefill(Prompt(), {}, {}).ok());
  EXPECT_EQ(whole->stats().budget_bytes, Start(options)->stats().budget_bytes);
}

TEST_F(PromptReadingTest, ABudgetThatCannotBeKeptIsRefusedBeforeReading) {
  SequenceOptions options =
      Options(PolicyName::kLookahead, PromptReading::kWhole);
  options.cache.budget.amount = 10;
  EXPECT_EQ(engine_->Start(options).status().code(),
            StatusCode::kInvalidArgument);
}

// What repeat keeps is what the second reading looks at: the positions of the
// most attention, whatever the policy's own history would say.
TEST_F(PromptReadingTest, RepeatKeepsWhatASecondReadingLooksAt) {
  SequenceOptions options =
      Options(PolicyName::kRepeat, PromptReading::kWithinBudget);
  const auto sequence = Start(options);
  ASSERT_TRUE(sequence->Prefill(Prompt(), {}, {}).ok());
  EXPECT_EQ(sequence->n_tokens(), kPrompt);
  EXPECT_LE(sequence->stats().resident_bytes, sequence->stats().budget_bytes);

  const KvShape shape = engine_->architecture().kv_shape();
  RereadScores scores(shape.n_lanes(), kPrompt);
  SequenceOptions twice = options;
  twice.cache.policy = PolicyName::kFull;
  twice.cache.budget = {};
  twice.prompt_tokens = 2 * kPrompt;
  const auto full = Start(twice);
  ASSERT_TRUE(full->Prefill(Prompt(), {}, {}).ok());
  ASSERT_TRUE(engine_->Reread(*full, Prompt(), scores, {}).ok());
  EXPECT_EQ(full->n_tokens(), 2 * kPrompt);
  // Both readings were in memory at once.
  EXPECT_GE(sequence->stats().resident_bytes_max, full->stats().full_bytes);
  for (uint32_t lane = 0; lane < shape.n_lanes(); ++lane) {
    const std::vector<uint32_t> kept = sequence->ResidentPositions(
        lane / shape.n_kv_heads, lane % shape.n_kv_heads);
    // Of what is not protected by its place.
    std::vector<float> stayed, left;
    for (uint32_t pos = 16; pos < kPrompt - 160; ++pos) {
      const bool is_kept = std::binary_search(kept.begin(), kept.end(), pos);
      (is_kept ? stayed : left).push_back(scores.of(lane)[pos]);
    }
    ASSERT_FALSE(stayed.empty());
    ASSERT_FALSE(left.empty());
    EXPECT_GE(*std::min_element(stayed.begin(), stayed.end()),
              0.5f * *std::max_element(left.begin(), left.end()))
        << lane;
  }
}

TEST_F(PromptReadingTest, RepeatNeedsAContextForTwoReadings) {
  SequenceOptions options = Options(PolicyName::kRepeat, PromptReading::kWhole);
  options.prompt_tokens = kContext / 2 + 1;
  const Status status = engine_->Start(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(
                "twice 1025 tokens are more than the context of 2048"),
            std::string_view::npos)
      << status.message();
}

TEST_F(PromptReadingTest, AStoppedReadingLeavesNothingToGoOnWith) {
  SequenceOptions options = Options(PolicyName::kRepeat, PromptReading::kWhole);
  const auto sequence = Start(options);
  uint32_t n_calls = 0;
  // The first reading has asked as often as a plain one asks in all.
  const auto plain =
      Start(Options(PolicyName::kLookahead, PromptReading::kWhole));
  ASSERT_TRUE(
      plain->Prefill(Prompt(), {}, [&] { return ++n_calls, false; }).ok());
  uint32_t n_more = 0;
  EXPECT_EQ(sequence->Prefill(Prompt(), {}, [&] { return ++n_more > n_calls; })
                .code(),
            StatusCode::kCancelled);
  EXPECT_FALSE(sequence->CheckWhole().ok());
}

TEST_F(PromptReadingTest, AForkWaitsForThePromptToBeRead) {
  const auto sequence =
      Start(Options(PolicyName::kLookahead, PromptReading::kWhole));
  EXPECT_EQ(engine_->Fork(*sequence).status().code(),
            StatusCode::kInvalidArgument);
  ASSERT_TRUE(sequence->Prefill(Prompt(), {}, {}).ok());
  EXPECT_TRUE(engine_->Fork(*sequence).ok());
}

TEST_F(PromptReadingTest, GenerateReadsWholeToo) {
  Request request;
  request.prompt = Prompt();
  request.max_new_tokens = 8;
  request.ignore_eos = true;
  request.cache = Options(PolicyName::kRepeat, PromptReading::kWhole).cache;
  const auto generation = engine_->Generate(request, {}, {}, {});
  ASSERT_TRUE(generation.ok()) << generation.status().message();
  EXPECT_EQ(generation->tokens.size(), 8u);
  EXPECT_GT(generation->kv.evicted_tokens, 0u);
  EXPECT_LE(generation->kv.resident_bytes, generation->kv.budget_bytes);
}

}  // namespace
}  // namespace lkv
