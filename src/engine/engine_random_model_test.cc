// The engine on a small model of random weights: quick enough for sanitizers.
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

class RandomModelTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>();
    RandomModelOptions model = RandomModelOf("llama");
    model.context_tokens = kTrainedTokens;
    WriteRandomModel(Path(), model);
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string Path() { return folder_->File("model.gguf"); }

  static std::unique_ptr<Engine> Open(uint32_t n_threads,
                                      uint32_t ctx_tokens = 0) {
    EngineOptions options;
    options.model_path = Path();
    options.n_threads = n_threads;
    options.ctx_tokens = ctx_tokens;
    Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return *std::move(engine);
  }

  static std::vector<int32_t> Tokens(uint32_t n) {
    std::vector<int32_t> tokens(n);
    for (uint32_t i = 0; i < n; ++i) {
      tokens[i] = static_cast<int32_t>(i * 7919 % 311);
    }
    return tokens;
  }

  static SequenceOptions Options(uint32_t n_prompt, uint32_t n_new) {
    SequenceOptions options;
    options.prompt_tokens = n_prompt;
    options.max_new_tokens = n_new;
    options.cache.budget = {Budget::Kind::kTokens, 1.0, 400};
    return options;
  }

  // Where the window of a sequence starts under a budget that caps no window.
  static uint32_t WindowAtStart(Engine& engine, const CacheOptions& cache) {
    SequenceOptions options = Options(4000, 0);
    options.cache = cache;
    options.cache.budget = {Budget::Kind::kTokens, 1.0, 3600};
    auto sequence = engine.Start(options);
    EXPECT_TRUE(sequence.ok()) << sequence.status().message();
    return (*sequence)->stats().window_tokens;
  }

  static constexpr uint32_t kTrainedTokens = 8192;
  static std::unique_ptr<TempFolder> folder_;
};

std::unique_ptr<TempFolder> RandomModelTest::folder_;

TEST_F(RandomModelTest, ThreadsChangeNeitherLogitsNorEvictions) {
  const std::vector<int32_t> tokens = Tokens(900);
  std::vector<float> logits;
  std::vector<uint32_t> resident;
  for (uint32_t n_threads : {1u, 2u, 3u}) {
    const std::unique_ptr<Engine> engine = Open(n_threads);
    auto sequence = engine->Start(Options(850, 50));
    ASSERT_TRUE(sequence.ok()) << sequence.status().message();
    ASSERT_TRUE(
        (*sequence)->Prefill(std::span(tokens).first(850), {}, {}).ok());
    for (uint32_t i = 850; i < 900; ++i) {
      ASSERT_TRUE((*sequence)->Decode(tokens[i]).ok());
    }
    const std::vector<float> now((*sequence)->logits().begin(),
                                 (*sequence)->logits().end());
    if (n_threads == 1) {
      logits = now;
      resident = (*sequence)->ResidentPositions(1, 1);
      EXPECT_GT((*sequence)->stats().evicted_tokens, 0u);
    }
    EXPECT_EQ(now, logits) << n_threads << " threads";
    EXPECT_EQ((*sequence)->ResidentPositions(1, 1), resident);
    EXPECT_LE((*sequence)->stats().resident_bytes_max,
              (*sequence)->stats().budget_bytes);
  }
}

TEST_F(RandomModelTest, ABatchGivesEachSequenceItsOwnLogits) {
  const std::unique_ptr<Engine> engine = Open(2);
  const std::vector<int32_t> tokens = Tokens(600);
  std::vector<std::unique_ptr<Sequence>> alone, together;
  for (uint32_t i = 0; i < 3; ++i) {
    for (auto* group : {&alone, &together}) {
      auto sequence = engine->Start(Options(100 * i + 50, 20));
      ASSERT_TRUE(sequence.ok()) << sequence.status().message();
      group->push_back(*std::move(sequence));
      ASSERT_TRUE(group->back()
                      ->Prefill(std::span(tokens).first(100 * i + 50), {}, {})
                      .ok());
    }
  }
  Sequence* const batch[] = {together[0].get(), together[1].get(),
                             together[2].get()};
  for (int32_t step = 0; step < 20; ++step) {
    const int32_t next[] = {step, step + 40, step + 80};
    ASSERT_TRUE(engine->DecodeBatch(batch, next).ok());
    for (uint32_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(alone[i]->Decode(next[i]).ok());
      EXPECT_TRUE(std::equal(alone[i]->logits().begin(),
                             alone[i]->logits().end(),
                             together[i]->logits().begin()))
          << "sequence " << i << ", step " << step;
    }
  }
  EXPECT_EQ(together[2]->times().step_us.size(), 20u);
}

TEST_F(RandomModelTest, CancelledAtEveryLayerLeavesAUsableEngine) {
  const std::unique_ptr<Engine> engine = Open(2);
  const std::vector<int32_t> tokens = Tokens(600);
  Turn turn;
  turn.prompt = tokens;
  turn.max_new_tokens = 0;
  uint32_t n_layers_of_a_run = 0;
  {
    auto sequence = engine->Start(Options(600, 0));
    ASSERT_TRUE(sequence.ok());
    auto count = [&] {
      ++n_layers_of_a_run;
      return false;
    };
    ASSERT_TRUE(engine->Continue(**sequence, turn, {}, {}, count).ok());
  }
  for (uint32_t stop_at = 0; stop_at < n_layers_of_a_run; ++stop_at) {
    auto sequence = engine->Start(Options(600, 0));
    ASSERT_TRUE(sequence.ok());
    uint32_t n_asked = 0;
    auto cancelled = [&] { return n_asked++ == stop_at; };
    auto stopped = engine->Continue(**sequence, turn, {}, {}, cancelled);
    ASSERT_TRUE(stopped.ok()) << stopped.status().message();
    EXPECT_EQ(stopped->stop_reason, StopReason::kCancelled);
    // A half-read prompt is not gone on with.
    EXPECT_EQ(engine->Continue(**sequence, turn, {}, {}, {}).status().code(),
              StatusCode::kInvalidArgument);
  }
  auto after = engine->Start(Options(600, 0));
  ASSERT_TRUE(after.ok());
  auto whole = engine->Continue(**after, turn, {}, {}, {});
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->stop_reason, StopReason::kLength);
}

TEST_F(RandomModelTest, APromptStoppedWithinAChunkHasCostTime) {
  const std::unique_ptr<Engine> engine = Open(1);
  auto sequence = engine->Start(Options(600, 0));
  ASSERT_TRUE(sequence.ok());
  uint32_t n_asked = 0;
  const Status stopped = (*sequence)->Prefill(
      Tokens(600), {}, [&] { return n_asked++ == 1; });  // the second layer
  EXPECT_EQ(stopped.code(), StatusCode::kCancelled);
  EXPECT_EQ((*sequence)->times().prefill_tokens, 0u);
  EXPECT_GT((*sequence)->times().prefill_s, 0.0);
}

TEST_F(RandomModelTest, WeightsThatChangedOnTheWayAreNamed) {
  auto notes_of = [](ggml_type type) {
    const TempFolder folder;
    RandomModelOptions model = RandomModelOf("llama");
    model.matrix_type = type;
    EngineOptions options;
    options.model_path = folder.File("model.gguf");
    WriteRandomModel(options.model_path, model);
    auto engine = Engine::Open(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return (*engine)->weight_notes();
  };
  EXPECT_TRUE(notes_of(GGML_TYPE_Q4_1).empty());
  const std::vector<std::string> notes = notes_of(GGML_TYPE_Q5_K);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(notes[0].starts_with("Q5_K held as F16")) << notes[0];
}

TEST_F(RandomModelTest, AutoBaseWindowIsAQuarterOfTheLongestSequence) {
  CacheOptions cache;
  cache.base_window_auto = true;
  cache.window_strategy = WindowStrategy::kStatic;
  EXPECT_EQ(WindowAtStart(*Open(1), cache), kTrainedTokens / 4);
  EXPECT_EQ(WindowAtStart(*Open(1, 6000), cache), 1500u);
}

TEST_F(RandomModelTest, AutoMaxWindowIsHalfMoreThanTheBaseWhereMemoryAllows) {
  CacheOptions cache;
  cache.base_window_tokens = 600;
  EXPECT_EQ(WindowAtStart(*Open(1), cache), 900u);
}

}  // namespace
}  // namespace lkv
