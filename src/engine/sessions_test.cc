// Sessions through the engine, on a small model of random weights.
#include "engine/sessions.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "testing/random_model.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

class SessionsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    models_ = std::make_unique<TempFolder>();
    WriteRandomModel(models_->File("model.gguf"), RandomModelOf("llama"));
  }
  static void TearDownTestSuite() { models_.reset(); }

  static std::unique_ptr<Engine> Open(
      const std::string& model = "model.gguf", uint32_t n_threads = 2,
      ActivationPrecision activations = ActivationPrecision::kAuto) {
    EngineOptions options;
    options.model_path = models_->File(model);
    options.n_threads = n_threads;
    options.activations = activations;
    Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return *std::move(engine);
  }

  CacheOptions Cache() {
    CacheOptions cache;
    cache.sessions_path = folder_.File("sessions");
    return cache;
  }
  CacheOptions Evicting() {
    CacheOptions cache = Cache();
    cache.budget = {Budget::Kind::kShare, 0.5, 0};
    cache.recent_tokens = 64;
    return cache;
  }
  std::unique_ptr<Sessions> OpenSessions(const CacheOptions& cache) {
    auto sessions = Sessions::Open(cache);
    EXPECT_TRUE(sessions.ok()) << sessions.status().message();
    return *std::move(sessions);
  }

  static std::vector<int32_t> Tokens(uint32_t n, uint32_t version = 0) {
    std::vector<int32_t> tokens(n);
    for (uint32_t i = 0; i < n; ++i) {
      tokens[i] = static_cast<int32_t>((i * 7919 + version * 131) % 311);
    }
    return tokens;
  }
  static SequenceOptions Lengths(const CacheOptions& cache, uint32_t n_prompt,
                                 uint32_t n_new) {
    SequenceOptions options;
    options.cache = cache;
    options.prompt_tokens = n_prompt;
    options.max_new_tokens = n_new;
    options.max_tokens = 2000;
    return options;
  }

  // Reads the prompt and generates without an end.
  static Generation Answer(Engine& engine, Sequence& sequence,
                           std::span<const int32_t> prompt, uint32_t n_new) {
    Turn turn;
    turn.prompt = prompt;
    turn.max_new_tokens = n_new;
    turn.ignore_eos = true;
    turn.sampler.temperature = 0;
    auto generation = engine.Continue(sequence, turn, {}, {}, {});
    EXPECT_TRUE(generation.ok()) << generation.status().message();
    return *std::move(generation);
  }

  // Saves what a sequence of these options has after a prompt of n_prompt.
  void SaveOne(const CacheOptions& cache, const std::string& name,
               uint32_t n_prompt) {
    const auto engine = Open();
    const auto sessions = OpenSessions(cache);
    auto sequence = engine->Start(Lengths(cache, n_prompt, 1));
    ASSERT_TRUE(sequence.ok()) << sequence.status().message();
    Answer(*engine, **sequence, Tokens(n_prompt), 1);
    const auto saved = sessions->Save(*engine, **sequence, name, "a note");
    ASSERT_TRUE(saved.ok()) << saved.status().message();
    EXPECT_EQ(saved->n_tokens, n_prompt);
  }
  // What a text that continues it gets of it.
  Sessions::Beginning BeginLike(const CacheOptions& cache, Engine& engine,
                                uint32_t n_tokens = 700) {
    const auto sessions = OpenSessions(cache);
    auto beginning = sessions->Begin(engine, Lengths(cache, n_tokens, 10),
                                     Tokens(n_tokens), "");
    EXPECT_TRUE(beginning.ok()) << beginning.status().message();
    return *std::move(beginning);
  }

  TempFolder folder_;
  static std::unique_ptr<TempFolder> models_;
};

std::unique_ptr<TempFolder> SessionsTest::models_;

struct Kind {
  std::string name;
  std::function<void(CacheOptions&)> set;
};

class EverySessionTest : public SessionsTest,
                         public testing::WithParamInterface<Kind> {};

// Two turns in one process, and one turn each in two.
TEST_P(EverySessionTest, GoesOnAfterARestartAsIfThereHadBeenNone) {
  CacheOptions cache = Cache();
  GetParam().set(cache);
  const std::vector<int32_t> first = Tokens(600);
  std::vector<int32_t> second = Tokens(80, 3);
  std::vector<int32_t> uninterrupted, restored;
  std::vector<std::vector<uint32_t>> resident;
  {
    const auto engine = Open();
    auto sequence = engine->Start(Lengths(cache, 600, 40));
    ASSERT_TRUE(sequence.ok()) << sequence.status().message();
    const Generation reply = Answer(*engine, **sequence, first, 40);
    second.insert(second.begin(), reply.tokens.back());
    const auto saved =
        OpenSessions(cache)->Save(*engine, **sequence, "talk", "note");
    ASSERT_TRUE(saved.ok()) << saved.status().message();
    EXPECT_EQ(saved->n_tokens, 639u);
    uninterrupted = Answer(*engine, **sequence, second, 60).tokens;
    for (uint32_t layer = 0; layer < 2; ++layer) {
      resident.push_back((*sequence)->ResidentPositions(layer, 1));
    }
    EXPECT_EQ((*sequence)->tokens().size(), 600 + 40 + 80 + 59u);
  }
  const auto engine = Open("model.gguf", 1);
  const auto sessions = OpenSessions(cache);
  const auto note = sessions->ReadNote(*engine, "talk");
  ASSERT_TRUE(note.ok()) << note.status().message();
  EXPECT_TRUE(note->is_of_model);
  EXPECT_EQ(note->note, "note");
  std::vector<int32_t> text = note->tokens;
  ASSERT_EQ(text.size(), 639u);
  text.insert(text.end(), second.begin(), second.end());
  auto beginning = sessions->Begin(
      *engine, Lengths(cache, static_cast<uint32_t>(text.size()), 60), text,
      "");
  ASSERT_TRUE(beginning.ok()) << beginning.status().message();
  EXPECT_EQ(beginning->cached_tokens, 639u)
      << beginning->miss << " " << beginning->detail;
  EXPECT_EQ(beginning->session, "talk");
  EXPECT_GT(beginning->read_bytes, 0u);
  Sequence& sequence = *beginning->sequence;
  restored = Answer(*engine, sequence,
                    std::span(text).subspan(beginning->cached_tokens), 60)
                 .tokens;
  EXPECT_EQ(restored, uninterrupted);
  EXPECT_EQ(sequence.times().prefill_tokens, 81u);
  EXPECT_LE(sequence.stats().resident_bytes, sequence.stats().budget_bytes);
  for (uint32_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(sequence.ResidentPositions(layer, 1), resident[layer]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, EverySessionTest,
    testing::ValuesIn(std::vector<Kind>{
        {"full", [](CacheOptions& c) { c.policy = PolicyName::kFull; }},
        {"int8",
         [](CacheOptions& c) {
           c.policy = PolicyName::kFull;
           c.kv_type = KvTypeName::kInt8;
         }},
        {"lookahead",
         [](CacheOptions& c) {
           c.budget = {Budget::Kind::kShare, 0.5, 0};
           c.recent_tokens = 64;
         }},
        {"read_whole",
         [](CacheOptions& c) {
           c.budget = {Budget::Kind::kShare, 0.5, 0};
           c.recent_tokens = 64;
           c.reading = PromptReading::kWhole;
         }},
        {"tiers",
         [](CacheOptions& c) {
           c.budget = {Budget::Kind::kShare, 0.7, 0};
           c.tiers = true;
         }},
        {"snapkv_int8",
         [](CacheOptions& c) {
           c.policy = PolicyName::kSnapKv;
           c.kv_type = KvTypeName::kInt8;
           c.budget = {Budget::Kind::kTokens, 1.0, 400};
           c.recent_tokens = 64;
         }}}),
    [](const auto& info) { return info.param.name; });

TEST_F(SessionsTest, AnotherTextTakesTheBeginningItShares) {
  for (const bool evicts : {false, true}) {
    // Room enough for the whole text: nothing has been evicted.
    CacheOptions cache = Cache();
    if (!evicts) cache.policy = PolicyName::kFull;
    SaveOne(cache, "document", 600);
    std::vector<int32_t> text = Tokens(500);
    for (const int32_t token : Tokens(100, 5)) text.push_back(token);
    const auto engine = Open();
    auto beginning =
        OpenSessions(cache)->Begin(*engine, Lengths(cache, 600, 30), text, "");
    ASSERT_TRUE(beginning.ok()) << beginning.status().message();
    EXPECT_EQ(beginning->cached_tokens, 500u)
        << beginning->miss << beginning->detail;
    const auto restored =
        Answer(*engine, *beginning->sequence, std::span(text).subspan(500), 30);
    auto anew = engine->Start(Lengths(cache, 600, 30));
    ASSERT_TRUE(anew.ok());
    EXPECT_EQ(restored.tokens, Answer(*engine, **anew, text, 30).tokens);
  }
}

TEST_F(SessionsTest, ABeginningIsTakenByAnotherPolicyThatReadsItWhole) {
  CacheOptions full = Cache();
  full.policy = PolicyName::kFull;
  SaveOne(full, "document", 600);
  CacheOptions cache = Evicting();
  cache.reading = PromptReading::kWhole;
  const auto engine = Open();
  Sessions::Beginning beginning = BeginLike(cache, *engine);
  // A quarter of it is read once more: by its queries the policy judges.
  EXPECT_EQ(beginning.cached_tokens, 450u)
      << beginning.miss << beginning.detail;
  const std::vector<int32_t> text = Tokens(700);
  Answer(*engine, *beginning.sequence, std::span(text).subspan(450), 10);
  EXPECT_LE(beginning.sequence->stats().resident_bytes,
            beginning.sequence->stats().budget_bytes);
  EXPECT_GT(beginning.sequence->stats().evicted_tokens, 200u);
  // Within the budget it would have evicted on the way.
  cache.reading = PromptReading::kWithinBudget;
  beginning = BeginLike(cache, *engine);
  EXPECT_EQ(beginning.cached_tokens, 0u);
  EXPECT_EQ(beginning.miss, "other_options");
}

TEST_F(SessionsTest, ShortOnesAreFoundByTheirName) {
  SaveOne(Evicting(), "short", 20);
  const auto engine = Open();
  const auto sessions = OpenSessions(Evicting());
  for (const auto& [likely, n_cached] :
       {std::pair{"short", 20u}, {"other", 0u}}) {
    const auto beginning = sessions->Begin(*engine, Lengths(Evicting(), 40, 10),
                                           Tokens(40), likely);
    ASSERT_TRUE(beginning.ok()) << beginning.status().message();
    EXPECT_EQ(beginning->cached_tokens, n_cached) << beginning->detail;
  }
  // Another text is not its.
  const auto beginning = sessions->Begin(*engine, Lengths(Evicting(), 40, 10),
                                         Tokens(40, 3), "short");
  ASSERT_TRUE(beginning.ok());
  EXPECT_EQ(beginning->cached_tokens, 0u);
}

TEST_F(SessionsTest, OfTheLikelyOneAndALongerOneTheLongerIsTaken) {
  CacheOptions cache = Cache();
  cache.policy = PolicyName::kFull;
  SaveOne(cache, "short", 100);
  SaveOne(cache, "long", 600);
  const auto engine = Open();
  const auto beginning = OpenSessions(cache)->Begin(
      *engine, Lengths(cache, 700, 10), Tokens(700), "short");
  ASSERT_TRUE(beginning.ok());
  EXPECT_EQ(beginning->session, "long");
  EXPECT_EQ(beginning->cached_tokens, 600u);
}

// Its exact pages hold other tokens.
TEST_F(SessionsTest, PagesForOtherSinksAreNotTaken) {
  CacheOptions cache = Cache();
  cache.policy = PolicyName::kFull;
  cache.kv_type = KvTypeName::kInt8;
  SaveOne(cache, "document", 600);
  cache.sink_tokens = 64;
  const auto engine = Open();
  EXPECT_EQ(BeginLike(cache, *engine).miss, "other_options");
}

TEST_F(SessionsTest, SaysWhyNothingIsTaken) {
  const auto engine = Open();
  const auto miss = [&](const CacheOptions& cache, uint32_t n_tokens = 700) {
    const Sessions::Beginning beginning = BeginLike(cache, *engine, n_tokens);
    EXPECT_EQ(beginning.cached_tokens, 0u);
    EXPECT_NE(beginning.sequence, nullptr);
    return beginning.miss + ": " + beginning.detail;
  };
  EXPECT_EQ(miss(Evicting()), "no_session: ");
  SaveOne(Evicting(), "document", 600);
  EXPECT_EQ(BeginLike(Evicting(), *engine).cached_tokens, 600u);
  // A shorter text.
  EXPECT_EQ(miss(Evicting(), 500), "evicted_prefix: ");
  CacheOptions other = Evicting();
  other.policy = PolicyName::kLru;
  EXPECT_EQ(miss(other), "other_options: policy is lookahead instead of lru");
  other = Evicting();
  other.budget.share = 0.6;
  EXPECT_EQ(miss(other), "other_options: budget is 50% instead of 60%");
  other = Evicting();
  other.kv_type = KvTypeName::kInt8;
  EXPECT_EQ(miss(other), "other_fingerprint: kv_type is f16 instead of int8");
}

TEST_F(SessionsTest, AnotherModelIsRefusedAndNamed) {
  CacheOptions cache = Cache();
  cache.policy = PolicyName::kFull;
  SaveOne(cache, "document", 600);
  const auto detail = [&](RandomModelOptions model,
                          ActivationPrecision activations) {
    WriteRandomModel(models_->File("other.gguf"), model);
    const auto engine = Open("other.gguf", 1, activations);
    const Sessions::Beginning beginning = BeginLike(cache, *engine);
    EXPECT_EQ(beginning.cached_tokens, 0u);
    EXPECT_EQ(beginning.miss, "other_fingerprint");
    const auto note = OpenSessions(cache)->ReadNote(*engine, "document");
    EXPECT_TRUE(note.ok() && note->is_of_model ==
                                 (activations == ActivationPrecision::kHigh));
    return beginning.detail.substr(0, beginning.detail.find(" is "));
  };
  const RandomModelOptions same = RandomModelOf("llama");
  RandomModelOptions other = same;
  other.seed = 2;
  EXPECT_EQ(detail(other, ActivationPrecision::kAuto), "weights");
  other = same;
  other.rope_frequency_base = 20000;
  EXPECT_EQ(detail(other, ActivationPrecision::kAuto), "rope");
  other = same;
  other.matrix_type = GGML_TYPE_Q4_0;
  EXPECT_EQ(detail(other, ActivationPrecision::kAuto), "quantisation");
  other = same;
  other.n_layers = 3;
  EXPECT_EQ(detail(other, ActivationPrecision::kAuto), "layers");
  EXPECT_EQ(detail(same, ActivationPrecision::kHigh), "activations");
}

TEST_F(SessionsTest, DamageMeansReadingAnew) {
  CacheOptions cache = Cache();
  cache.policy = PolicyName::kFull;
  SaveOne(cache, "document", 600);
  std::string file;
  for (const auto& entry :
       std::filesystem::directory_iterator(cache.sessions_path)) {
    if (entry.path().extension() == ".session") file = entry.path();
  }
  const std::string sound = folder_.File("sound");
  std::filesystem::copy_file(file, sound);
  const auto n_bytes = std::filesystem::file_size(file);
  const auto engine = Open();
  const std::vector<int32_t> text = Tokens(700);
  auto anew = engine->Start(Lengths(cache, 700, 20));
  ASSERT_TRUE(anew.ok());
  const auto expected = Answer(*engine, **anew, text, 20).tokens;
  uint32_t n_restored = 0;
  for (uint64_t at = 100; at < n_bytes; at += n_bytes / 40) {
    // What is found damaged may be removed.
    std::filesystem::copy_file(
        sound, file, std::filesystem::copy_options::overwrite_existing);
    chmod(file.c_str(), 0600);
    {
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(static_cast<std::streamoff>(at));
      const auto c = static_cast<char>(bytes.get() ^ 0x10);
      bytes.seekp(static_cast<std::streamoff>(at));
      bytes.put(c);
    }
    const Sessions::Beginning beginning = BeginLike(cache, *engine);
    n_restored += beginning.cached_tokens > 0;
    const auto rest = std::span(text).subspan(beginning.cached_tokens);
    EXPECT_EQ(Answer(*engine, *beginning.sequence, rest, 20).tokens, expected)
        << at;
  }
  // Bytes between the blocks are nobody's.
  EXPECT_LT(n_restored, 4u);
}

TEST_F(SessionsTest, AKeySealsThem) {
  CacheOptions cache = Cache();
  cache.policy = PolicyName::kFull;
  cache.sessions_key_file = folder_.File("key");
  const auto write_key = [&](char fill) {
    std::ofstream(cache.sessions_key_file) << std::string(32, fill);
    chmod(cache.sessions_key_file.c_str(), 0600);
  };
  write_key('a');
  SaveOne(cache, "secret", 600);
  const auto engine = Open();
  EXPECT_EQ(BeginLike(cache, *engine).cached_tokens, 600u);
  write_key('b');
  EXPECT_EQ(BeginLike(cache, *engine).miss, "no_session");
  EXPECT_FALSE(OpenSessions(cache)->ReadNote(*engine, "secret").ok());
  cache.sessions_key_file = "none";
  EXPECT_EQ(BeginLike(cache, *engine).miss, "no_session");
  cache.sessions_key_file = folder_.File("missing");
  EXPECT_EQ(Sessions::Open(cache).status().code(), StatusCode::kNotFound);
}

TEST_F(SessionsTest, WhatHasReadNothingCannotBeKept) {
  const auto engine = Open();
  auto sequence = engine->Start(Lengths(Cache(), 100, 1));
  ASSERT_TRUE(sequence.ok());
  const auto saved = OpenSessions(Cache())->Save(*engine, **sequence, "a", "");
  EXPECT_EQ(saved.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(SessionsTest, AutoIsWhereTheUsersProgramsKeepTheirState) {
  setenv("XDG_STATE_HOME", folder_.File("state").c_str(), 1);
  EXPECT_EQ(*DefaultSessionsPath(),
            folder_.File("state") + "/lookaheadkv/sessions");
  const auto sessions = OpenSessions(CacheOptions());
  EXPECT_TRUE(std::filesystem::is_directory(*DefaultSessionsPath()));
  unsetenv("XDG_STATE_HOME");
  setenv("HOME", "/somewhere", 1);
  EXPECT_EQ(*DefaultSessionsPath(),
            "/somewhere/.local/state/lookaheadkv/sessions");
  unsetenv("HOME");
  EXPECT_EQ(DefaultSessionsPath().status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace lkv
