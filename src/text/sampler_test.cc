#include "text/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "testing/random_model.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

const Tokenizer& SmolLm() {
  static const auto tokenizer = *Tokenizer::Open(TestModelPath());
  return *tokenizer;
}

// 320 tokens without text: quick to sample from.
const Tokenizer& Small() {
  static const auto tokenizer = [] {
    TempFolder folder;
    WriteRandomModel(folder.File("m.gguf"), {});
    return *Tokenizer::Open(folder.File("m.gguf"));
  }();
  return *tokenizer;
}

std::unique_ptr<Sampler> MustCreate(const SamplerOptions& options) {
  const Tokenizer& tokenizer = options.grammar.empty() ? Small() : SmolLm();
  Result<std::unique_ptr<Sampler>> sampler =
      Sampler::Create(tokenizer, options);
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  return std::move(*sampler);
}

// All tokens of a vocabulary far below those given.
std::vector<float> Logits(const std::map<int32_t, float>& tokens,
                          const Tokenizer& tokenizer = Small()) {
  std::vector<float> logits(tokenizer.vocab_size(), -50.0f);
  for (auto [token, logit] : tokens) logits[token] = logit;
  return logits;
}

// Options that draw from the plain softmax.
SamplerOptions Plain(uint32_t seed) {
  return {.temperature = 1,
          .top_k = 0,
          .top_p = 1,
          .min_p = 0,
          .repeat_penalty = 1,
          .seed = seed,
          .grammar = ""};
}

std::map<int32_t, int> Draw(const SamplerOptions& options,
                            const std::vector<float>& logits, int n) {
  auto sampler = MustCreate(options);
  std::map<int32_t, int> counts;
  for (int i = 0; i < n; ++i) ++counts[sampler->Sample(logits)];
  return counts;
}

TEST(SamplerTest, TemperatureZeroTakesTheMostLikely) {
  auto sampler = MustCreate({});
  EXPECT_EQ(sampler->Sample(Logits({{7, 1.0f}, {9, 2.0f}, {11, 1.5f}})), 9);
}

TEST(SamplerTest, DrawsInProportionToTheSoftmax) {
  const auto logits =
      Logits({{7, std::log(0.7f)}, {9, std::log(0.2f)}, {11, std::log(0.1f)}});
  std::map<int32_t, int> counts = Draw(Plain(1), logits, 4000);
  // Four standard deviations of 4,000 draws.
  EXPECT_NEAR(counts[7], 2800, 116);
  EXPECT_NEAR(counts[9], 800, 102);
  EXPECT_NEAR(counts[11], 400, 76);
}

TEST(SamplerTest, TemperatureSharpens) {
  const auto logits = Logits({{7, 1.0f}, {9, 0.0f}});
  SamplerOptions options = Plain(1);
  options.temperature = 0.5f;  // odds e^2
  EXPECT_NEAR(Draw(options, logits, 2000)[7], 2000 * 0.8808, 58);
}

TEST(SamplerTest, TheSeedDecidesEverything) {
  const auto logits = Logits({{7, 1.0f}, {9, 1.0f}, {11, 1.0f}, {13, 1.0f}});
  auto sequence = [&](uint32_t seed) {
    auto sampler = MustCreate(Plain(seed));
    std::vector<int32_t> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(sampler->Sample(logits));
    return tokens;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
  // libllama would draw a random seed for this one.
  EXPECT_EQ(sequence(0xffffffffu), sequence(0xffffffffu));
}

TEST(SamplerTest, FiltersCutTheTail) {
  const auto logits =
      Logits({{7, std::log(0.6f)}, {9, std::log(0.3f)}, {11, std::log(0.1f)}});
  auto n_kinds = [&](auto change) {
    SamplerOptions options = Plain(1);
    change(&options);
    return Draw(options, logits, 500).size();
  };
  EXPECT_EQ(n_kinds([](auto*) {}), 3u);
  EXPECT_EQ(n_kinds([](auto* o) { o->top_k = 2; }), 2u);
  EXPECT_EQ(n_kinds([](auto* o) { o->top_k = 1; }), 1u);
  EXPECT_EQ(n_kinds([](auto* o) { o->top_p = 0.8f; }), 2u);
  EXPECT_EQ(n_kinds([](auto* o) { o->min_p = 0.4f; }), 2u);
}

TEST(SamplerTest, TheRepeatPenaltyKnowsDrawnAndAcceptedTokens) {
  SamplerOptions options;
  options.repeat_penalty = 2.0f;
  const auto logits = Logits({{7, 3.0f}, {9, 2.0f}});
  auto sampler = MustCreate(options);
  EXPECT_EQ(sampler->Sample(logits), 7);
  EXPECT_EQ(sampler->Sample(logits), 9) << "7 now counts 1.5";
  auto after_prompt = MustCreate(options);
  after_prompt->Accept(7);
  EXPECT_EQ(after_prompt->Sample(logits), 9);
}

TEST(SamplerTest, BrokenLogitsGiveATokenAllTheSame) {
  const float kInf = std::numeric_limits<float>::infinity();
  const auto n_vocab = Small().vocab_size();
  for (float broken : {std::nanf(""), kInf, -kInf}) {
    for (float temperature : {0.0f, 0.1f, 1.0f}) {
      SamplerOptions options;
      options.temperature = temperature;
      auto sampler = MustCreate(options);
      std::vector<float> logits(n_vocab, broken);
      EXPECT_LT(static_cast<uint32_t>(sampler->Sample(logits)), n_vocab);
      logits = Logits({{7, 3.0f}});
      logits[0] = std::nanf("");
      EXPECT_EQ(sampler->Sample(logits), 7);
    }
  }
}

TEST(SamplerTest, OptionsOutOfRangeAreRefused) {
  const float kNan = std::nanf("");
  auto code = [](auto change) {
    SamplerOptions options;
    change(&options);
    return Sampler::Create(SmolLm(), options).status().code();
  };
  const auto kInvalid = StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](auto*) {}), StatusCode::kOk);
  EXPECT_EQ(code([](auto* o) { o->temperature = -1; }), kInvalid);
  EXPECT_EQ(code([&](auto* o) { o->temperature = kNan; }), kInvalid);
  EXPECT_EQ(code([](auto* o) { o->top_k = -1; }), kInvalid);
  EXPECT_EQ(code([](auto* o) { o->top_p = 0; }), kInvalid);
  EXPECT_EQ(code([](auto* o) { o->top_p = 1.5f; }), kInvalid);
  EXPECT_EQ(code([&](auto* o) { o->min_p = kNan; }), kInvalid);
  EXPECT_EQ(code([](auto* o) { o->min_p = -0.1f; }), kInvalid);
  EXPECT_EQ(code([](auto* o) { o->repeat_penalty = 0; }), kInvalid);
  EXPECT_EQ(code([](auto* o) { o->grammar = "root = nonsense"; }), kInvalid);
}

// --- Grammar -----------------------------------------------------------------

SamplerOptions WithGrammar(const std::string& grammar) {
  SamplerOptions options;
  options.grammar = grammar;
  return options;
}

std::vector<float> NoPreference() { return Logits({}, SmolLm()); }

// Samples to the end of generation from the same logits at every step.
std::string Generate(Sampler* sampler, const std::vector<float>& logits) {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    int32_t token = sampler->Sample(logits);
    if (SmolLm().IsEndOfGeneration(token)) return text;
    text += SmolLm().TokenBytes(token, Tokenizer::Special::kAsText);
  }
  return text + "...";
}

int32_t TokenOf(const std::string& text) {
  auto tokens = SmolLm().Tokenize(text, Tokenizer::Start::kNone,
                                  Tokenizer::Special::kAsText);
  EXPECT_EQ(tokens.size(), 1u) << text;
  return tokens[0];
}

TEST(SamplerGrammarTest, TheTextObeysAndEnds) {
  auto sampler = MustCreate(WithGrammar("root ::= \"yes\" | \"no\""));
  // Unwilling logits: the grammar has to overrule them at every step.
  const std::string text =
      Generate(sampler.get(), Logits({{TokenOf("Hello"), 5.0f}}, SmolLm()));
  EXPECT_TRUE(text == "yes" || text == "no") << text;
}

TEST(SamplerGrammarTest, LogitsChooseAmongWhatIsAllowed) {
  const auto logits = Logits(
      {{TokenOf("Hello"), 5.0f}, {TokenOf("no"), 4.0f}, {TokenOf("yes"), 3.0f}},
      SmolLm());
  auto no = MustCreate(WithGrammar("root ::= \"yes\" | \"no\""));
  EXPECT_EQ(Generate(no.get(), logits), "no");
  auto hello = MustCreate(WithGrammar("root ::= [A-Z] [a-z]+"));
  EXPECT_EQ(hello->Sample(logits), TokenOf("Hello"));
}

TEST(SamplerGrammarTest, MultiByteCharactersAreMatchedAcrossTokens) {
  auto sampler = MustCreate(WithGrammar("root ::= \"🦙\""));
  EXPECT_EQ(Generate(sampler.get(), NoPreference()), "🦙");
}

TEST(SamplerGrammarTest, AFinishedTextStaysFinished) {
  auto sampler = MustCreate(WithGrammar("root ::= \"no\""));
  Generate(sampler.get(), NoPreference());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(SmolLm().IsEndOfGeneration(sampler->Sample(NoPreference())));
  }
}

TEST(SamplerGrammarTest, ThePromptDoesNotAdvanceTheGrammar) {
  auto sampler = MustCreate(WithGrammar("root ::= \"no\""));
  sampler->Accept(TokenOf("Hello"));
  EXPECT_EQ(Generate(sampler.get(), NoPreference()), "no");
}

TEST(SamplerGrammarTest, LeftRecursionIsExplained) {
  auto sampler =
      Sampler::Create(SmolLm(), WithGrammar("root ::= root \"x\" | \"y\""));
  ASSERT_FALSE(sampler.ok());
  EXPECT_EQ(sampler.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(sampler.status().message().find("left recursion"),
            std::string_view::npos);
}

TEST(SamplerGrammarTest, AModelWithoutVocabularyCannotTakeOne) {
  TempFolder folder;
  WriteRandomModel(folder.File("m.gguf"), {});
  auto tokenizer = *Tokenizer::Open(folder.File("m.gguf"));
  auto sampler = Sampler::Create(*tokenizer, WithGrammar("root ::= \"x\""));
  EXPECT_EQ(sampler.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Sampler::Create(*tokenizer, {}).ok());
}

}  // namespace
}  // namespace lkv
