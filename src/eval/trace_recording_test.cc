// Recording on the real model, on a short text.
#include "eval/trace_recording.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "eval/demo.h"
#include "eval/forced_run.h"
#include "testing/memory_file_system.h"
#include "testing/test_paths.h"
#include "trace/trace_reader.h"
#include "trace/window_replay.h"

namespace lkv {
namespace {

constexpr uint32_t kTokens = 90;

// What the cache says of one lane in a run of its own.
class LaneWatcher final : public AttentionObserver {
 public:
  LaneWatcher(uint32_t layer, uint32_t kv_head)
      : layer_(layer), kv_head_(kv_head) {}
  void OnAttention(const AttentionSample& sample) override {
    if (sample.layer != layer_ || sample.kv_head != kv_head_) return;
    rows.emplace_back(sample.mass_mean, sample.mass_mean + sample.n_slots);
  }
  std::vector<std::vector<float>> rows;

 private:
  const uint32_t layer_;
  const uint32_t kv_head_;
};

class TraceRecordingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options;
    options.model_path = TestModelPath();
    options.activations = ActivationPrecision::kHigh;
    auto opened = Engine::Open(options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    engine_ = *std::move(opened);
    tokens_ = engine_->tokenizer().Tokenize(
        DemoText(), Tokenizer::Start::kAsTrained, Tokenizer::Special::kAsText);
    tokens_.resize(kTokens);
  }
  static void TearDownTestSuite() { engine_.reset(); }

  Result<RecordedTrace> Record(const std::vector<uint32_t>& layers = {},
                               bool reread = false) {
    return RecordTrace(
        files_, *engine_, tokens_,
        {.path = "t", .text = "demo", .layers = layers, .reread = reread}, {},
        {});
  }

  static inline std::unique_ptr<Engine> engine_;
  static inline std::vector<int32_t> tokens_;
  MemoryFileSystem files_;
};

TEST_F(TraceRecordingTest, WritesTheAttentionOfEveryToken) {
  const auto recorded = Record({2, 29});
  ASSERT_TRUE(recorded.ok()) << recorded.status().message();
  EXPECT_EQ(recorded->n_tokens, kTokens);
  EXPECT_EQ(recorded->n_lanes, 6u);
  const auto reader = TraceReader::Open(files_, "t");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(recorded->n_bytes, reader->n_bytes());
  EXPECT_EQ(reader->info().model, engine_->model_fingerprint());
  EXPECT_EQ(reader->info().text, "demo");

  LaneWatcher watcher(29, 1);
  engine_->SetObserver(&watcher);
  const ForcedPart part{.prefill = {}, .decode = tokens_};
  CacheOptions full;
  full.policy = PolicyName::kFull;
  const auto run = StartAndRunForced(*engine_, {&part, 1},
                                     OptionsFor({&part, 1}, full), {}, {}, {});
  engine_->SetObserver(nullptr);
  ASSERT_TRUE(run.ok()) << run.status().message();

  const auto lane = reader->ReadLane(1 * 3 + 1);
  ASSERT_TRUE(lane.ok()) << lane.status().message();
  ASSERT_EQ(watcher.rows.size(), kTokens);
  for (uint32_t step = 0; step < kTokens; ++step) {
    float total = 0;
    for (uint32_t p = 0; p < PagesOf(step + 1); ++p) {
      float sum = 0;
      for (uint32_t i = p * kPageTokens;
           i < std::min((p + 1) * kPageTokens, step + 1); ++i) {
        sum += watcher.rows[step][i];
      }
      EXPECT_NEAR(lane->pages(step).mean[p], sum, sum / 512 + 1e-7f);
      EXPECT_GE(lane->pages(step).max[p], lane->pages(step).mean[p] * 0.999f);
      total += lane->pages(step).mean[p];
    }
    EXPECT_NEAR(total, 1, 0.002);
    EXPECT_GT(lane->value_norm(step), 0);
    if (!HasExpectation(step)) continue;
    const float* expected = lane->expectation(step);
    EXPECT_NEAR(std::accumulate(expected, expected + step + 1, 0.0), 1, 0.01);
  }
}

// A model that reads a text again looks at what it is about to repeat.
TEST_F(TraceRecordingTest, TheSecondReadingLooksAtTheFirst) {
  const auto recorded = Record({2, 20, 29}, true);
  ASSERT_TRUE(recorded.ok()) << recorded.status().message();
  EXPECT_EQ(recorded->n_tokens, kTokens) << "the first reading's";
  const auto reader = TraceReader::Open(files_, "t");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->n_steps(), kTokens);
  float most = 0;
  for (uint32_t lane = 0; lane < 9; ++lane) {
    const auto trace = reader->ReadLane(lane);
    ASSERT_TRUE(trace.ok());
    ASSERT_EQ(trace->reread().size(), kTokens);
    for (uint32_t i = kTokens / 2; i < kTokens; ++i) {
      EXPECT_GT(trace->reread()[i], 0) << "lane " << lane << ", token " << i;
      most = std::max(most, trace->reread()[i]);
    }
  }
  EXPECT_GT(most, 0.3f);
}

// The window of a replay is the one that a cache has: both see the same change
// of pattern, but for the trace's rounding to 11 bits.
TEST_F(TraceRecordingTest, AReplayedPatternChangesAsInACache) {
  ASSERT_TRUE(Record().ok());
  const auto reader = TraceReader::Open(files_, "t");
  ASSERT_TRUE(reader.ok());
  CacheOptions cache;
  cache.recent_tokens = 16;       // or so short a text would not be contestable
  cache.base_window_tokens = 64;  // window keys: the pattern is watched
  const auto team = ThreadTeam::Create(2);
  ASSERT_TRUE(team.ok());
  const auto replayed = ReplayPatternChange(*reader, cache, **team, {}, {});
  ASSERT_TRUE(replayed.ok()) << replayed.status().message();

  const ForcedPart part{.prefill = {}, .decode = tokens_};
  std::vector<double> live;
  const auto run =
      StartAndRunForced(*engine_, {&part, 1}, OptionsFor({&part, 1}, cache),
                        [&](const Sequence& sequence) {
                          live.push_back(sequence.stats().pattern_change);
                        },
                        {}, {});
  ASSERT_TRUE(run.ok()) << run.status().message();
  ASSERT_EQ(live.size(), replayed->size());
  EXPECT_GT(live.back(), 0);
  for (uint32_t step = 0; step < kTokens; ++step) {
    EXPECT_NEAR((*replayed)[step], live[step], 0.01 * live[step] + 1e-5)
        << "step " << step;
  }
}

TEST_F(TraceRecordingTest, RefusesLayersThatTheModelHasNot) {
  EXPECT_EQ(Record({30}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Record({3, 3}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(files_.files.empty());
}

TEST_F(TraceRecordingTest, RefusesATextWithoutTokens) {
  for (bool reread : {false, true}) {
    const Status status =
        RecordTrace(
            files_, *engine_, {},
            {.path = "t", .text = "none", .layers = {}, .reread = reread}, {},
            {})
            .status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("none: has no tokens"), std::string::npos);
    EXPECT_TRUE(files_.files.empty());
  }
}

TEST_F(TraceRecordingTest, EndsWhenTheDiskIsFull) {
  files_.free_bytes = 20'000;
  EXPECT_EQ(Record().status().code(), StatusCode::kIo);
  EXPECT_TRUE(files_.files.empty());
}

TEST_F(TraceRecordingTest, LeavesNothingWhenItIsStopped) {
  uint32_t n_done = 0;
  const auto recorded = RecordTrace(
      files_, *engine_, tokens_, {.path = "t", .text = "demo", .layers = {0}},
      [&](uint32_t n) { n_done = n; }, [&] { return n_done == 20; });
  EXPECT_EQ(recorded.status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(files_.files.empty());
}

}  // namespace
}  // namespace lkv
