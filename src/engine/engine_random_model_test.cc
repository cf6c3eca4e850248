// The engine on a small model of random weights: quick enough for sanitizers.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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

EngineOptions RandomOptions(const std::string& path) {
  EngineOptions options;
  options.model_path = path;
  options.n_threads = 1;
  return options;
}

// The weights of this copy cannot be loaded, so whatever is refused for another
// reason was refused before.
TEST_F(RandomModelTest, TheFirstSequenceIsCheckedBeforeTheWeightsAreLoaded) {
  const TempFolder folder;
  const std::string path = folder.File("broken.gguf");
  std::filesystem::copy_file(Path(), path);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4, std::ios::end);  // the last weight becomes NaN
    file.write("\xff\xff\xff\xff", 4);
  }
  EngineOptions options = RandomOptions(path);
  EXPECT_EQ(Engine::Open(options).status().code(), StatusCode::kCorrupt);

  SequenceOptions first = Options(4000, 100);
  options.first_sequence = [&](const Tokenizer&, uint32_t) { return first; };
  EXPECT_EQ(Engine::Open(options).status().code(), StatusCode::kCorrupt);

  first.max_new_tokens = kTrainedTokens;
  Status status = Engine::Open(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("allow_beyond_trained"), std::string::npos);

  options.allow_beyond_trained = true;
  first.max_new_tokens = 2'000'000'000;
  first.cache.budget = {};
  status = Engine::Open(options).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.message();

  first = Options(4000, 100);
  first.cache.budget = {Budget::Kind::kBytes, 1.0, 1000};
  status = Engine::Open(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(status.message().starts_with("budget")) << status.message();
}

TEST_F(RandomModelTest, ARefusalToNameTheFirstSequenceIsPassedOn) {
  EngineOptions options = RandomOptions(Path());
  options.first_sequence = [](const Tokenizer& tokenizer, uint32_t) {
    return Result<SequenceOptions>(
        NotFound(std::to_string(tokenizer.vocab_size())));
  };
  const Status status = Engine::Open(options).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "320");
}

// Sanitizers reserve terabytes of addresses.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Bytes of addresses that this process has mapped.
uint64_t MappedBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t n_pages = 0;
  statm >> n_pages;
  return n_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Opens the model and reads a text under a limit on addresses, in a process
// that ends with its verdict.
[[noreturn]] void RunWithAddresses(const std::string& path,
                                   uint64_t more_bytes) {
  const rlim_t limit = MappedBytes() + more_bytes;
  const rlimit limits = {.rlim_cur = limit, .rlim_max = limit};
  setrlimit(RLIMIT_AS, &limits);
  EngineOptions options = RandomOptions(path);
  options.n_threads = 2;
  Status status;
  auto engine = Engine::Open(options);
  if (engine.ok()) {
    Request request;
    request.prompt.resize(3000, 7);
    request.max_new_tokens = 4;
    status = (*engine)->Generate(request, {}, {}, {}).status();
  } else {
    status = engine.status();
  }
  const std::string message(status.message());
  std::fprintf(stderr, "%s\n", message.c_str());
  std::_Exit(static_cast<int>(status.code()));
}

TEST_F(RandomModelTest, TooFewAddressesAreSaidAndNeverEndTheProcess) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const auto ended_in_order = [](int status) {
    return WIFEXITED(status) &&
           (WEXITSTATUS(status) == static_cast<int>(StatusCode::kOk) ||
            WEXITSTATUS(status) == static_cast<int>(StatusCode::kOutOfMemory));
  };
  for (uint64_t mib = 1; mib < 160; mib += 6) {
    EXPECT_EXIT(RunWithAddresses(Path(), mib * kMiB), ended_in_order, "")
        << mib << " MiB";
  }
  const auto code = [](StatusCode code) {
    return testing::ExitedWithCode(static_cast<int>(code));
  };
  EXPECT_EXIT(RunWithAddresses(Path(), 40 * kMiB),
              code(StatusCode::kOutOfMemory), "ulimit -v");
  EXPECT_EXIT(RunWithAddresses(Path(), 1024 * kMiB), code(StatusCode::kOk), "");
}

// Watches nothing.
class IdleObserver final : public AttentionObserver {
 public:
  void OnAttention(const AttentionSample&) override {}
};

// Ends the process with the verdict of a step after a long sequence, which had
// no observer, was given one without memory for it.
[[noreturn]] void ObserveWithoutMemory(const std::string& path) {
  EngineOptions options = RandomOptions(path);
  options.allow_beyond_trained = true;
  auto engine = Engine::Open(options);
  SequenceOptions long_text;
  long_text.cache.policy = PolicyName::kFull;
  // Its masses are buffers of 50 MB, beyond what malloc serves from its heap.
  long_text.prompt_tokens = 400'000;
  auto sequence = (*engine)->Start(long_text);
  constexpr rlimit kNoMoreAddresses = {.rlim_cur = 1, .rlim_max = 1};
  setrlimit(RLIMIT_AS, &kNoMoreAddresses);
  IdleObserver observer;
  (*engine)->SetObserver(&observer);
  const Status status = (*sequence)->Decode(7);
  std::_Exit(static_cast<int>(status.code()));
}

// Ends the process with the verdict of a step after a sequence could not be
// forked.
[[noreturn]] void ForkWithoutMemory(const std::string& path) {
  auto engine = Engine::Open(RandomOptions(path));
  SequenceOptions text;
  text.prompt_tokens = 2000;
  text.max_new_tokens = 10;
  auto sequence = (*engine)->Start(text);
  const std::vector<int32_t> prompt(500, 7);
  if (!(*sequence)->Prefill(prompt, {}, {}).ok()) std::_Exit(99);
  constexpr rlimit kNoMoreAddresses = {.rlim_cur = 1, .rlim_max = 1};
  setrlimit(RLIMIT_AS, &kNoMoreAddresses);
  const Status refusal = (*engine)->Fork(**sequence).status();
  if (refusal.code() != StatusCode::kOutOfMemory) std::_Exit(98);
  if ((*sequence)->stats().shared_bytes != 0) std::_Exit(97);
  const Status status = (*sequence)->Decode(7);
  std::_Exit(static_cast<int>(status.code()));
}

TEST_F(RandomModelTest, ASequenceThatCouldNotBeForkedGoesOn) {
  EXPECT_EXIT(ForkWithoutMemory(Path()), testing::ExitedWithCode(0), "");
}

TEST_F(RandomModelTest, NoMemoryForAnObserverIsSaidByTheNextStep) {
  EXPECT_EXIT(
      ObserveWithoutMemory(Path()),
      testing::ExitedWithCode(static_cast<int>(StatusCode::kOutOfMemory)), "");
}
#endif

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
