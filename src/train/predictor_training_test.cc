// Training on traces with known truth, and what is refused.
#include "train/predictor_training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "testing/memory_file_system.h"
#include "trace/trace_writer.h"

namespace lkv {
namespace {

struct Recording {
  std::string model = "0123";
  std::string text = "a";
  std::vector<uint32_t> layers = {0, 1};
  bool reread = true;
  uint32_t n_tokens = 1100;
};

// Every seventh token of every other page gets attention again and again, and
// much of it in the second reading.
bool IsWanted(uint32_t pos) { return pos % 32 < 16 && pos % 7 == 3; }

class PredictorTrainingTest : public testing::Test {
 protected:
  void Record(const std::string& path, const Recording& recording) {
    const TraceInfo info{
        .shape = {.n_layers = 2, .n_kv_heads = 1, .group = 1, .head_dim = 16},
        .layers = recording.layers,
        .model = recording.model,
        .text = recording.text};
    auto writer = TraceWriter::Create(files_, path, info);
    ASSERT_TRUE(writer.ok());
    std::vector<float> mass(recording.n_tokens);
    for (uint32_t step = 0; step < recording.n_tokens; ++step) {
      float sum = 0;
      for (uint32_t i = 0; i <= step; ++i) {
        sum += mass[i] = IsWanted(i) ? 1.0f : 0.02f;
      }
      for (uint32_t i = 0; i <= step; ++i) mass[i] /= sum;
      for (uint32_t lane = 0; lane < info.n_lanes(); ++lane) {
        (*writer)->AddStep(lane, {.value_norm = 1,
                                  .value_distance = 1,
                                  .mass_max = mass.data(),
                                  .mass_mean = mass.data()});
        if (HasExpectation(step)) {
          (*writer)->AddExpectation(lane, std::span(mass).first(step + 1));
        }
      }
      ASSERT_TRUE((*writer)->FinishStep().ok());
    }
    if (recording.reread) {
      for (uint32_t i = 0; i < recording.n_tokens; ++i) {
        mass[i] = IsWanted(i) ? 0.5f : 0.001f;
      }
      for (uint32_t lane = 0; lane < info.n_lanes(); ++lane) {
        ASSERT_TRUE((*writer)->AddReread(mass).ok());
      }
    }
    ASSERT_TRUE((*writer)->Finish().ok());
  }

  Result<TrainedPredictor> Train(const std::vector<std::string>& paths) {
    std::vector<TraceReader> traces;
    for (const std::string& path : paths) {
      auto trace = TraceReader::Open(files_, path);
      EXPECT_TRUE(trace.ok()) << trace.status().message();
      traces.push_back(*std::move(trace));
    }
    auto team = ThreadTeam::Create(2);
    EXPECT_TRUE(team.ok());
    return TrainPredictor(traces, {}, *SelectKernels(nullptr), **team, {}, {});
  }

  void ExpectRefused(const std::vector<std::string>& paths,
                     const std::string& name) {
    const auto trained = Train(paths);
    EXPECT_EQ(trained.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(trained.status().message()).find(name),
              std::string::npos)
        << trained.status().message();
  }

  MemoryFileSystem files_;
};

TEST_F(PredictorTrainingTest, LearnsWhatIsWantedAgain) {
  for (char text : std::string("abc")) {
    Record(std::string(1, text), {.text = std::string(1, text)});
  }
  const auto trained = Train({"a", "b", "c"});
  ASSERT_TRUE(trained.ok()) << trained.status().message();
  EXPECT_EQ(trained->file.model, "0123");
  EXPECT_EQ(trained->n_texts, 3u);
  EXPECT_EQ(trained->n_held_out_texts, 1u);
  EXPECT_EQ(trained->n_examples, 2 * trained->n_held_out) << "texts are alike";
  EXPECT_LT(trained->error, 0.2 * trained->mean_error);
}

// What is wanted gets attention all the time here, so that the average knows
// it as well as the network.
TEST_F(PredictorTrainingTest, ReplaysTheHeldOutTextWithTheNetwork) {
  for (char text : std::string("abc")) {
    Record(std::string(1, text), {.text = std::string(1, text)});
  }
  const auto trained = Train({"a", "b", "c"});
  ASSERT_TRUE(trained.ok()) << trained.status().message();
  ASSERT_TRUE(trained->holdout.hits.has_value()) << trained->holdout.why_none;
  const HoldoutHits& hits = *trained->holdout.hits;
  EXPECT_GT(hits.mass_hit, 1.2 * hits.random_mass_hit);
  EXPECT_LE(hits.mass_hit, hits.oracle_mass_hit);
  EXPECT_GT(hits.ema_mass_hit, 1.2 * hits.random_mass_hit);
  EXPECT_NEAR(hits.regret,
              (hits.oracle_mass_hit - hits.mass_hit) /
                  (hits.oracle_mass_hit - hits.random_mass_hit),
              1e-12);
}

TEST_F(PredictorTrainingTest, TextsTooShortForAQuarterAreNotReplayed) {
  for (char text : std::string("ab")) {
    Record(std::string(1, text),
           {.text = std::string(1, text), .n_tokens = 640});
  }
  const auto trained = Train({"a", "b"});
  ASSERT_TRUE(trained.ok()) << trained.status().message();
  EXPECT_FALSE(trained->holdout.hits.has_value());
  EXPECT_NE(trained->holdout.why_none.find("25% of 640 tokens"),
            std::string::npos)
      << trained->holdout.why_none;
}

TEST_F(PredictorTrainingTest, NamesTheTraceThatDoesNotFit) {
  Record("a", {.text = "a"});
  Record("other model", {.model = "4567", .text = "b"});
  Record("one layer", {.text = "b", .layers = {1}});
  Record("read once", {.text = "b", .reread = false});
  Record("same text", {.text = "a"});
  ExpectRefused({"a", "other model"}, "other model");
  ExpectRefused({"a", "one layer"}, "one layer");
  ExpectRefused({"a", "read once"}, "read once");
  ExpectRefused({"a", "same text"}, "one text");
  ExpectRefused({}, "none");
}

}  // namespace
}  // namespace lkv
