// The engine on the real model: SmolLM2-135M-Instruct Q4_1.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "testing/test_engine.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

std::unique_ptr<Engine> OpenEngine(uint32_t n_threads,
                                   uint32_t ctx_tokens = 0) {
  EngineOptions options;
  options.model_path = TestModelPath();
  options.n_threads = n_threads;
  options.ctx_tokens = ctx_tokens;
  Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? *std::move(engine) : nullptr;
}

std::vector<int32_t> Tokenize(std::string_view text) {
  return SharedEngine().tokenizer().Tokenize(text, Tokenizer::Start::kAsTrained,
                                             Tokenizer::Special::kAsText);
}

// About 14 tokens a sentence.
std::vector<int32_t> LongPrompt(uint32_t n_tokens) {
  std::string text;
  for (uint32_t i = 0; i < n_tokens / 8 + 1; ++i) {
    text += "On day " + std::to_string(i) + " the keeper wrote that " +
            std::to_string(i * 37 % 101) + " birds sat on the rocks. ";
  }
  std::vector<int32_t> tokens = Tokenize(text);
  EXPECT_GE(tokens.size(), n_tokens);
  tokens.resize(n_tokens);
  return tokens;
}

Request MakeRequest(std::vector<int32_t> prompt, uint32_t max_new_tokens,
                    PolicyName policy, Budget budget) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = max_new_tokens;
  request.cache.policy = policy;
  request.cache.budget = budget;
  return request;
}

Generation GenerateOrFail(Engine& engine, const Request& request) {
  Result<Generation> generation = engine.Generate(request, {}, {}, {});
  EXPECT_TRUE(generation.ok()) << generation.status().message();
  return generation.ok() ? *std::move(generation) : Generation{};
}

constexpr Budget kFullBudget{};
constexpr Budget kQuarter{Budget::Kind::kShare, 0.25, 0};
// Little more than the protected tokens, so that a short prompt evicts.
constexpr Budget kSmall{Budget::Kind::kTokens, 1.0, 300};

// Positions of all lanes that survive a long prompt and a few steps.
std::vector<std::vector<uint32_t>> ResidentAfter(
    Engine& engine, std::span<const int32_t> prompt,
    std::span<const int32_t> continuation) {
  SequenceOptions options;
  options.cache.budget = kSmall;
  options.prompt_tokens = static_cast<uint32_t>(prompt.size());
  options.max_new_tokens = static_cast<uint32_t>(continuation.size());
  Result<std::unique_ptr<Sequence>> sequence = engine.Start(options);
  EXPECT_TRUE(sequence.ok()) << sequence.status().message();
  EXPECT_TRUE((*sequence)->Prefill(prompt, {}, {}).ok());
  for (int32_t token : continuation) {
    EXPECT_TRUE((*sequence)->Decode(token).ok());
  }
  std::vector<std::vector<uint32_t>> resident;
  const Architecture& a = engine.architecture();
  for (uint32_t layer = 0; layer < a.n_layers; ++layer) {
    for (uint32_t head = 0; head < a.n_kv_heads; ++head) {
      resident.push_back((*sequence)->ResidentPositions(layer, head));
    }
  }
  return resident;
}

TEST(EngineTest, ContinuesAWellKnownSentence) {
  const Generation g = GenerateOrFail(
      SharedEngine(),
      MakeRequest(Tokenize("One, two, three, four, five, six, seven,"), 4,
                  PolicyName::kFull, kFullBudget));
  EXPECT_NE(g.text.find("eight"), std::string::npos) << g.text;
}

TEST(EngineTest, BudgetAboveTheLengthGivesTheFullCachesText) {
  const std::vector<int32_t> prompt = LongPrompt(300);
  const Generation full = GenerateOrFail(
      SharedEngine(), MakeRequest(prompt, 32, PolicyName::kFull, kFullBudget));
  const Budget roomy{Budget::Kind::kTokens, 1.0, 2000};
  const Generation lookahead = GenerateOrFail(
      SharedEngine(), MakeRequest(prompt, 32, PolicyName::kLookahead, roomy));
  EXPECT_EQ(lookahead.text, full.text);
  EXPECT_EQ(lookahead.tokens, full.tokens);
  EXPECT_EQ(lookahead.kv.evicted_tokens, 0u);
}

TEST(EngineTest, TheSameRequestTwiceGivesTheSameTextAndEvictions) {
  const std::vector<int32_t> prompt = LongPrompt(500);
  const Request request =
      MakeRequest(prompt, 8, PolicyName::kLookahead, kSmall);
  const Generation first = GenerateOrFail(SharedEngine(), request);
  const Generation second = GenerateOrFail(SharedEngine(), request);
  EXPECT_EQ(first.text, second.text);
  EXPECT_GT(first.kv.evicted_tokens, 0u);
  EXPECT_EQ(first.kv.evicted_tokens, second.kv.evicted_tokens);

  const auto continuation = std::span(prompt).first(8);
  EXPECT_EQ(ResidentAfter(SharedEngine(), prompt, continuation),
            ResidentAfter(SharedEngine(), prompt, continuation));
}

TEST(EngineTest, ThreadsChangeNeitherTextNorEvictions) {
  const std::vector<int32_t> prompt = LongPrompt(500);
  const Request request =
      MakeRequest(prompt, 8, PolicyName::kLookahead, kSmall);
  std::string text;
  std::vector<std::vector<uint32_t>> resident;
  for (uint32_t n_threads : {1u, 2u, 3u}) {
    const std::unique_ptr<Engine> engine = OpenEngine(n_threads);
    ASSERT_EQ(engine->n_threads(), n_threads);
    const Generation g = GenerateOrFail(*engine, request);
    const auto kept =
        ResidentAfter(*engine, prompt, std::span(prompt).first(8));
    if (n_threads == 1) {
      text = g.text;
      resident = kept;
    }
    EXPECT_EQ(g.text, text) << n_threads << " threads";
    EXPECT_EQ(kept, resident) << n_threads << " threads";
  }
}

TEST(EngineTest, ANeighbourInTheBatchChangesNothing) {
  Engine& engine = SharedEngine();
  const std::vector<int32_t> prompt = LongPrompt(400);
  const auto first = std::span(prompt).first(300);
  const auto second = std::span(prompt).subspan(37, 200);
  auto start = [&](std::span<const int32_t> tokens) {
    SequenceOptions options;
    options.prompt_tokens = static_cast<uint32_t>(tokens.size());
    options.max_new_tokens = 8;
    Result<std::unique_ptr<Sequence>> sequence = engine.Start(options);
    EXPECT_TRUE(sequence.ok()) << sequence.status().message();
    EXPECT_TRUE((*sequence)->Prefill(tokens, {}, {}).ok());
    return *std::move(sequence);
  };
  const auto alone = start(first);
  const auto together = start(first);
  const auto neighbour = start(second);
  Sequence* const batch[] = {neighbour.get(), together.get()};
  for (uint32_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(alone->Decode(prompt[300 + i]).ok());
    const int32_t tokens[] = {prompt[237 + i], prompt[300 + i]};
    ASSERT_TRUE(engine.DecodeBatch(batch, tokens).ok());
    ASSERT_TRUE(std::equal(alone->logits().begin(), alone->logits().end(),
                           together->logits().begin()))
        << "step " << i;
  }
  EXPECT_EQ(together->n_tokens(), 308u);
  EXPECT_EQ(neighbour->n_tokens(), 208u);
}

TEST(EngineTest, AForkHasTheLogitsOfASequenceThatReadTheTextItself) {
  Engine& engine = SharedEngine();
  const std::vector<int32_t> prompt = LongPrompt(700);
  const auto common = std::span(prompt).first(600);
  auto start = [&] {
    SequenceOptions options;
    options.cache.budget = kSmall;
    options.prompt_tokens = 600;
    options.max_new_tokens = 40;
    Result<std::unique_ptr<Sequence>> sequence = engine.Start(options);
    EXPECT_TRUE(sequence.ok()) << sequence.status().message();
    EXPECT_TRUE((*sequence)->Prefill(common, {}, {}).ok());
    return *std::move(sequence);
  };
  const auto alone = start();
  auto parent = start();
  Result<std::unique_ptr<Sequence>> fork = engine.Fork(*parent);
  ASSERT_TRUE(fork.ok()) << fork.status().message();
  EXPECT_EQ((*fork)->n_tokens(), 600u);
  EXPECT_EQ((*fork)->max_tokens(), parent->max_tokens());
  EXPECT_EQ((*fork)->times().prefill_tokens, 0u);
  EXPECT_TRUE(std::equal(alone->logits().begin(), alone->logits().end(),
                         (*fork)->logits().begin()));
  Sequence* const batch[] = {parent.get(), fork->get()};
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(alone->Decode(prompt[600 + i]).ok());
    const int32_t tokens[] = {prompt[680 - i], prompt[600 + i]};
    ASSERT_TRUE(engine.DecodeBatch(batch, tokens).ok());
    ASSERT_TRUE(std::equal(alone->logits().begin(), alone->logits().end(),
                           (*fork)->logits().begin()))
        << "step " << i;
  }
  EXPECT_GT((*fork)->stats().evicted_tokens, 0u);
  parent.reset();
  EXPECT_EQ((*fork)->stats().shared_bytes, 0u);
  ASSERT_TRUE((*fork)->Decode(prompt[620]).ok());
}

TEST(EngineTest, ASequenceStoppedWithinAStepCannotBeForked) {
  Engine& engine = SharedEngine();
  SequenceOptions options;
  options.prompt_tokens = 100;
  Result<std::unique_ptr<Sequence>> sequence = engine.Start(options);
  ASSERT_TRUE(sequence.ok()) << sequence.status().message();
  EXPECT_EQ(
      (*sequence)->Prefill(LongPrompt(100), {}, [] { return true; }).code(),
      StatusCode::kCancelled);
  EXPECT_EQ(engine.Fork(**sequence).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(EngineTest, BudgetHoldsThroughoutALongPrompt) {
  const Generation g = GenerateOrFail(
      SharedEngine(),
      MakeRequest(LongPrompt(1200), 16, PolicyName::kLookahead, kQuarter));
  EXPECT_LE(g.kv.resident_bytes_max, g.kv.budget_bytes);
  EXPECT_GT(g.kv.resident_bytes_max, g.kv.budget_bytes / 2);
  const uint64_t full_bytes =
      1216 *
      SharedEngine().architecture().kv_shape().bytes_per_token(KvType::kF16);
  EXPECT_LE(g.kv.budget_bytes, full_bytes / 4 + 1);
}

TEST(EngineTest, CancelledInPrefillReturnsWhatWasDone) {
  uint32_t n_asked = 0;
  uint32_t done = 0;
  Result<Generation> g = SharedEngine().Generate(
      MakeRequest(LongPrompt(2000), 16, PolicyName::kLookahead, kQuarter), {},
      [&](uint32_t n) { done = n; },
      [&] { return ++n_asked > 40; });  // 30 layers: within the second chunk
  ASSERT_TRUE(g.ok()) << g.status().message();
  EXPECT_EQ(g->stop_reason, StopReason::kCancelled);
  EXPECT_EQ(g->text, "");
  EXPECT_GT(done, 0u);
  EXPECT_LT(done, 2000u);
}

TEST(EngineTest, CancelledWhileGeneratingKeepsTheText) {
  std::string seen;
  Result<Generation> g = SharedEngine().Generate(
      MakeRequest(Tokenize("Once upon a time"), 64, PolicyName::kFull,
                  kFullBudget),
      [&](std::string_view text) {
        seen += text;
        return true;
      },
      {}, [&] { return seen.size() > 20; });
  ASSERT_TRUE(g.ok()) << g.status().message();
  EXPECT_EQ(g->stop_reason, StopReason::kCancelled);
  EXPECT_GT(g->text.size(), 20u);
  EXPECT_EQ(g->text, seen);
  EXPECT_LT(g->tokens.size(), 64u);
}

TEST(EngineTest, ListenerCanStop) {
  int n_calls = 0;
  Result<Generation> g = SharedEngine().Generate(
      MakeRequest(Tokenize("Once upon a time"), 64, PolicyName::kFull,
                  kFullBudget),
      [&](std::string_view) { return ++n_calls < 3; }, {}, {});
  ASSERT_TRUE(g.ok());
  EXPECT_EQ(n_calls, 3);
  EXPECT_EQ(g->stop_reason, StopReason::kCancelled);
}

TEST(EngineTest, ContextOverflowNamesBothNumbersAndTheOption) {
  Result<Generation> g = SharedEngine().Generate(
      MakeRequest(LongPrompt(64), 9000, PolicyName::kFull, kFullBudget), {}, {},
      {});
  ASSERT_FALSE(g.ok());
  EXPECT_EQ(g.status().code(), StatusCode::kInvalidArgument);
  const std::string message(g.status().message());
  EXPECT_NE(message.find("9064"), std::string::npos) << message;
  EXPECT_NE(message.find("8192"), std::string::npos) << message;
  EXPECT_NE(message.find("allow_beyond_trained"), std::string::npos);
}

TEST(EngineTest, ContextOptionLimitsAndBeyondTrainedMustBeAllowed) {
  const std::unique_ptr<Engine> engine = OpenEngine(0, 128);
  Result<Generation> g = engine->Generate(
      MakeRequest(LongPrompt(100), 50, PolicyName::kFull, kFullBudget), {}, {},
      {});
  ASSERT_FALSE(g.ok());
  EXPECT_NE(g.status().message().find("ctx_tokens"), std::string::npos);

  EngineOptions options;
  options.model_path = TestModelPath();
  options.ctx_tokens = 10000;
  const Status refused = Engine::Open(options).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("allow_beyond_trained"), std::string::npos);
}

TEST(EngineTest, StopsAtTheEndOfText) {
  const ChatMessage message{"user", "Say hello in one word."};
  Result<TokenizedChat> chat = SharedEngine().tokenizer().TokenizeChat(
      {&message, 1}, Tokenizer::Reply::kBegin);
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  Request request =
      MakeRequest(chat->tokens, 200, PolicyName::kFull, kFullBudget);
  const Generation g = GenerateOrFail(SharedEngine(), request);
  EXPECT_EQ(g.stop_reason, StopReason::kEndOfText);
  EXPECT_LT(g.tokens.size(), 200u);
  for (int32_t token : g.tokens) {
    EXPECT_FALSE(SharedEngine().tokenizer().IsEndOfGeneration(token));
  }

  request.ignore_eos = true;
  request.max_new_tokens = static_cast<uint32_t>(g.tokens.size()) + 8;
  const Generation longer = GenerateOrFail(SharedEngine(), request);
  EXPECT_EQ(longer.stop_reason, StopReason::kLength);
  EXPECT_EQ(longer.tokens.size(), request.max_new_tokens);
  EXPECT_TRUE(
      std::equal(g.tokens.begin(), g.tokens.end(), longer.tokens.begin()));
  for (int32_t token : longer.tokens) {
    EXPECT_FALSE(SharedEngine().tokenizer().IsEndOfGeneration(token));
  }
}

TEST(EngineTest, NoNewTokensOnlyReadsThePrompt) {
  const Generation g = GenerateOrFail(
      SharedEngine(),
      MakeRequest(LongPrompt(64), 0, PolicyName::kFull, kFullBudget));
  EXPECT_EQ(g.stop_reason, StopReason::kLength);
  EXPECT_TRUE(g.tokens.empty());
  EXPECT_EQ(g.text, "");
  EXPECT_EQ(g.kv.n_tokens, 64u);
  EXPECT_EQ(g.times.prefill_tokens, 64u);
}

TEST(EngineTest, EmptyPromptIsRefused) {
  Result<Generation> g = SharedEngine().Generate(
      MakeRequest({}, 8, PolicyName::kFull, kFullBudget), {}, {}, {});
  EXPECT_EQ(g.status().code(), StatusCode::kInvalidArgument);
}

TEST(EngineTest, TurnsContinueASequence) {
  Engine& engine = SharedEngine();
  const std::vector<int32_t> prompt = LongPrompt(200);
  SequenceOptions options;
  options.prompt_tokens = 220;
  auto start = [&] { return *engine.Start(options); };
  Turn turn;
  turn.max_new_tokens = 4;

  const std::unique_ptr<Sequence> split = start();
  turn.prompt = std::span(prompt).first(150);
  turn.max_new_tokens = 0;
  ASSERT_TRUE(engine.Continue(*split, turn, {}, {}, {}).ok());
  turn.prompt = std::span(prompt).subspan(150);
  turn.max_new_tokens = 4;
  Result<Generation> second = engine.Continue(*split, turn, {}, {}, {});
  ASSERT_TRUE(second.ok());

  EXPECT_EQ(split->n_tokens(), 203u);  // the last token drawn is not fed
  EXPECT_EQ(second->tokens.size(), 4u);
  // 17 left, so a turn of 14 and 4 does not fit.
  turn.prompt = std::span(prompt).first(14);
  EXPECT_EQ(engine.Continue(*split, turn, {}, {}, {}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(EngineTest, BudgetBelowTheFloorNamesTheSmallestLegalOne) {
  for (uint32_t n_prompt : {1, 64, 400}) {
    SCOPED_TRACE(n_prompt);
    const auto generate = [&](uint64_t budget_bytes) {
      return SharedEngine().Generate(
          MakeRequest(LongPrompt(n_prompt), 20, PolicyName::kLookahead,
                      {Budget::Kind::kBytes, 1.0, budget_bytes}),
          {}, {}, {});
    };
    const Status refused = generate(1000).status();
    ASSERT_EQ(refused.code(), StatusCode::kInvalidArgument);
    const std::string message(refused.message());
    const size_t at = message.find("use at least ");
    ASSERT_NE(at, std::string::npos) << message;
    const uint64_t smallest_bytes = std::stoull(message.substr(at + 13));
    const Result<Generation> fits = generate(smallest_bytes);
    EXPECT_TRUE(fits.ok()) << fits.status().message();
    EXPECT_EQ(generate(smallest_bytes - 1).status().message(),
              "budget: " + std::to_string(smallest_bytes - 1) +
                  message.substr(message.find(" bytes")));
  }
}

TEST(EngineTest, MissingModelIsNotFound) {
  EngineOptions options;
  options.model_path = "/nonexistent/model.gguf";
  const Status status = Engine::Open(options).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nonexistent/model.gguf"),
            std::string_view::npos);
}

TEST(EngineTest, ThePredictorThatCameWithTheProgramServesItsModel) {
  const auto has_network = [](const std::string& predictor, PolicyName policy) {
    Request request = MakeRequest(LongPrompt(40), 1, policy, kFullBudget);
    request.cache.predictor = predictor;
    return GenerateOrFail(SharedEngine(), request).kv.forecast.has_value();
  };
  EXPECT_TRUE(has_network("auto", PolicyName::kLookahead));
  EXPECT_TRUE(has_network("mlp", PolicyName::kLookahead));
  EXPECT_TRUE(has_network(std::string(LKV_SOURCE_DIR) +
                              "/predictors/smollm2-135m-instruct-q4_1.gguf",
                          PolicyName::kLookahead));
  EXPECT_FALSE(has_network("ema", PolicyName::kLookahead));
  EXPECT_FALSE(has_network("auto", PolicyName::kLru));

  Request request =
      MakeRequest(LongPrompt(40), 1, PolicyName::kLookahead, kFullBudget);
  request.cache.predictor = TestModelPath();
  const auto no_predictor = SharedEngine().Generate(request, {}, {}, {});
  EXPECT_EQ(no_predictor.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(no_predictor.status().message().find("is no predictor"),
            std::string::npos);
}

}  // namespace
}  // namespace lkv
