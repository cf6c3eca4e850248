// `lkv trace`, `lkv train`, `lkv bench policies` and `window` on synthetic
// traces: without a model.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "testing/child_process.h"
#include "testing/test_paths.h"
#include "trace/trace_writer.h"

namespace lkv::cli {
namespace {

using Words = std::vector<std::string>;

class TraceVerbTest : public testing::Test {
 protected:
  // Makes a trace and returns its path.
  std::string Synthesize(const std::string& name, const Words& more = {}) {
    const std::string path = folder_.File(name);
    Words words = {"trace",    "synth", "--steps", "1024",
                   "--layers", "1",     "-o",      path};
    words.insert(words.end(), more.begin(), more.end());
    const ChildResult result = RunLkv(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return path;
  }
  static nlohmann::json RunJson(Words words) {
    words.push_back("--json");
    const ChildResult result = RunLkv(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  }

  TempFolder folder_;
};

TEST_F(TraceVerbTest, InfoHoldsEveryFieldOfTheInterface) {
  const nlohmann::json info = RunJson({"trace", "info", Synthesize("a.trace")});
  EXPECT_EQ(info["sequences"], 1);
  EXPECT_EQ(info["tokens"], 1024);
  EXPECT_EQ(info["layers"], (std::vector<int>{0}));
  EXPECT_EQ(info["kv_heads"], 3);
  EXPECT_EQ(info["bytes"], std::filesystem::file_size(folder_.File("a.trace")));
  EXPECT_EQ(info["text"], "synthetic text, seed 1");
}

TEST_F(TraceVerbTest, PolicyRowsHoldEveryFieldOfTheInterface) {
  const std::string traces =
      Synthesize("a.trace") + "," + Synthesize("b.trace", {"--seed", "2"});
  const nlohmann::json rows =
      RunJson({"bench", "policies", "--trace", traces, "--budget", "25%,50%",
               "--policies", "lru,lookahead,oracle_future"})["rows"];
  ASSERT_EQ(rows.size(), 6u);
  for (const nlohmann::json& row : rows) {
    for (const char* field :
         {"policy", "budget", "mass_hit", "topk_hit", "raw_hit", "regret"}) {
      EXPECT_TRUE(row.contains(field)) << field;
    }
    EXPECT_EQ(row["ci95"].size(), 2u);
    EXPECT_EQ(row["regret_ci95"].size(), 2u);
  }
  EXPECT_EQ(rows[0]["policy"], "lru");
  EXPECT_EQ(rows[0]["budget"], 0.25);
  EXPECT_EQ(rows[2]["regret"], 0);
}

TEST_F(TraceVerbTest, TheTableNamesAllPoliciesByDefault) {
  const ChildResult result = RunLkv({"bench", "policies", "--trace",
                                     Synthesize("a.trace"), "--budget", "50%"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* name : {"lookahead", "observed", "random", "oracle_step"}) {
    EXPECT_NE(result.out.find(name), std::string::npos) << result.out;
  }
}

// 6.25 % of 1,024 tokens are 4 pages, 12.5 % are 8, 25 % are 16; sinks, 128
// newest and what is open take 11.
TEST_F(TraceVerbTest, UsualBudgetsThatCannotHoldAreLeftOut) {
  const ChildResult result =
      RunLkv({"bench", "policies", "--trace", Synthesize("a.trace"),
              "--policies", "lru", "--json"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err.find("lkv: --budget: 6.25%, 12.5% of these texts"), 0u)
      << result.err;
  const auto rows = nlohmann::json::parse(result.out, nullptr, false)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["budget"], 0.25);
}

TEST_F(TraceVerbTest, TheUnitSaysWhetherPagesOrTokensLeave) {
  const std::string trace = Synthesize("a.trace");
  const auto mass_hit = [&](const Words& more) {
    Words words = {"bench",    "policies", "--trace",    trace,
                   "--budget", "25%",      "--policies", "oracle_future"};
    words.insert(words.end(), more.begin(), more.end());
    return double{RunJson(words)["rows"][0]["mass_hit"]};
  };
  EXPECT_GT(mass_hit({"--set", "unit=repack"}),
            mass_hit({"--set", "unit=page"}));
  EXPECT_EQ(mass_hit({}), mass_hit({"--set", "unit=repack"})) << "the default";
}

TEST_F(TraceVerbTest, WindowRowsAreOfBothLawsAndOfThePartsBetweenMarks) {
  const std::string trace =
      Synthesize("a.trace", {"--needles", "0", "--topic", "512"});
  const nlohmann::json window =
      RunJson({"bench", "window", "--trace", trace, "--marks", "512,768,9999"});
  const nlohmann::json& rows = window["rows"];
  ASSERT_EQ(rows.size(), 6u) << "a mark behind the text parts nothing";
  for (const nlohmann::json& row : rows) {
    for (const char* field :
         {"change_max", "first_window_max_tokens", "window_mean_tokens",
          "window_min_tokens", "window_max_tokens", "window_end_tokens",
          "moves", "reversals_per_1000_tokens"}) {
      EXPECT_TRUE(row.contains(field)) << field;
    }
    EXPECT_EQ(row["trace"], trace);
  }
  EXPECT_EQ(rows[2]["law"], "symmetric");
  EXPECT_EQ(rows[3]["law"], "source");
  EXPECT_EQ(rows[2]["begin"], 512);
  EXPECT_EQ(rows[2]["end"], 768);
  const nlohmann::json& text = window["texts"][0];
  EXPECT_EQ(text["budget_tokens"], 512);
  EXPECT_EQ(text["base_window_tokens"], 128);
  const nlohmann::json& curve = text["curve"];
  ASSERT_EQ(curve.size(), 1024u);
  EXPECT_EQ(curve[767]["position"], 767);
  for (const int law : {0, 1}) {
    const nlohmann::json& part = rows[2 + law];
    const std::string name = part["law"];
    EXPECT_EQ(curve[767]["window_tokens"][name], part["window_end_tokens"]);
  }
  EXPECT_GT(curve[640]["change"], 0.06) << "behind the turn";
}

TEST_F(TraceVerbTest, WindowTablesOfSeveralTextsBearTheirNames) {
  const std::string one = Synthesize("one.trace");
  const std::string other = Synthesize("other.trace", {"--seed", "2"});
  const ChildResult both =
      RunLkv({"bench", "window", "--trace", one + "," + other});
  ASSERT_EQ(both.exit_code, 0) << both.err;
  const size_t table = both.out.find("turns/1000");
  const size_t second = both.out.find(other + "\n");
  EXPECT_EQ(both.out.find(one + "\n"), 0u) << both.out;
  ASSERT_NE(second, std::string::npos) << both.out;
  EXPECT_LT(table, second);
  EXPECT_GT(both.out.rfind("turns/1000"), second);
  const ChildResult alone = RunLkv({"bench", "window", "--trace", one});
  EXPECT_EQ(alone.out.find(one), std::string::npos) << alone.out;
}

TEST_F(TraceVerbTest, BadInputIsNamedWithTheRightCode) {
  const std::string trace = Synthesize("a.trace");
  std::ofstream(folder_.File("text")) << "no trace";
  std::filesystem::copy(trace, folder_.File("cut"));
  std::filesystem::resize_file(folder_.File("cut"), 5000);
  const struct {
    Words words;
    int exit_code;
    std::string says;
  } cases[] = {
      {{"trace"}, 2, "trace: "},
      {{"trace", "info"}, 2, "file: is missing"},
      {{"trace", "info", folder_.File("none")}, 3, "none: cannot be opened"},
      {{"trace", "info", folder_.File("text")}, 3, "is no attention trace"},
      {{"trace", "info", folder_.File("cut")}, 3, "cut off"},
      {{"trace", "info", folder_.File("")}, 3, "is not a regular file"},
      {{"trace", "synth", "-o", folder_.File("no/such/folder")},
       3,
       "cannot be created"},
      {{"trace", "synth", "-o", folder_.File("b"), "--steps", "10"},
       2,
       "--steps"},
      {{"trace", "synth", "-o", folder_.File("b"), "--layers", "0"},
       2,
       "--layers"},
      {{"trace", "synth", "-o", folder_.File("b"), "--seed", "-1"},
       2,
       "--seed: '-1' is no whole number"},
      {{"train", "--traces", "x", "-o", "y", "--seed", "-1"},
       2,
       "--seed: '-1'"},
      {{"trace", "record", "-f", "x"}, 2, "--output: is missing"},
      {{"trace", "record", "-f", folder_.File("none"), "-o", "x"}, 3, "none"},
      {{"bench", "window"}, 2, "--trace: is missing"},
      {{"bench", "window", "--trace", folder_.File("cut")}, 3, "cut off"},
      {{"bench", "window", "--trace", trace, "--budget", "512"},
       2,
       "512 is no share"},
      {{"bench", "window", "--trace", trace, "--marks", "0"}, 2, "--marks"},
      {{"bench", "window", "--trace", trace, "--marks", "512,256"},
       2,
       "--marks: 256 does not lie behind 512"},
      {{"bench", "policies"}, 2, "--trace: is missing"},
      {{"bench", "policies", "--trace", folder_.File("cut")}, 3, "cut off"},
      {{"bench", "policies", "--trace",
        trace + "," + folder_.File("./a.trace")},
       2,
       "is given twice"},
      {{"bench", "window", "--trace", trace + "," + trace},
       2,
       "is given twice"},
      {{"bench", "policies", "--trace", trace, "--policies", "best"},
       2,
       "best"},
      {{"bench", "policies", "--trace", trace, "--policies", "full"},
       2,
       "full evicts nothing"},
      {{"bench", "policies", "--trace", trace, "--budget", "512"},
       2,
       "512 is no share"},
      {{"bench", "policies", "--trace", trace, "--budget", "2%"},
       2,
       "fewer than"},
      {{"bench", "policies", "--trace", trace, "--budget", "100%"},
       2,
       "nothing to evict"},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(testing::PrintToString(test.words));
    const ChildResult result = RunLkv(test.words);
    EXPECT_EQ(result.exit_code, test.exit_code) << result.err;
    EXPECT_NE(result.err.find(test.says), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.File("b")));
}

TEST_F(TraceVerbTest, AFullDiskLeavesTheOldTrace) {
  const std::string trace = Synthesize("a.trace");
  const auto n_bytes = std::filesystem::file_size(trace);
  ChildOptions full_disk;
  full_disk.may_fill_files = false;
  const ChildResult result = RunLkv({"trace", "synth", "-o", trace}, full_disk);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_NE(result.err.find("check the disk"), std::string::npos) << result.err;
  EXPECT_EQ(std::filesystem::file_size(trace), n_bytes);
}

TEST_F(TraceVerbTest, ATextIsNotOverwrittenByItsTrace) {
  const std::string text = folder_.File("text");
  std::ofstream(text) << "A few words.";
  // By another name, too.
  const std::string link = folder_.File("link");
  std::filesystem::create_hard_link(text, link);
  for (const std::string& output : {text, link}) {
    const ChildResult result =
        RunLkv({"trace", "record", "-f", text, "-o", output});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("is read, too"), std::string::npos) << result.err;
  }
  EXPECT_EQ(std::filesystem::file_size(text), 12u);
}

TEST_F(TraceVerbTest, TrainNamesWhatItCannotLearnFrom) {
  const std::string trace = Synthesize("a.trace");
  const std::string good = folder_.File("good.gguf");
  std::ofstream(good) << "the one before";
  const std::string empty = folder_.File("empty");
  std::filesystem::create_directory(empty);
  const std::string text = folder_.File("text");
  std::ofstream(text) << "no trace";
  struct Case {
    std::string traces;
    int exit_code;
    std::string says;
  };
  for (const Case& c :
       {Case{folder_.File("missing"), 3, "missing"}, Case{empty, 3, empty},
        Case{text, 3, "is no attention trace"},
        Case{good, 2, "good.gguf': is read, too"},
        Case{trace, 2, trace + ": has no second reading"}}) {
    const ChildResult result =
        RunLkv({"train", "--traces", c.traces, "-o", good});
    EXPECT_EQ(result.exit_code, c.exit_code) << c.traces;
    EXPECT_NE(result.err.find(c.says), std::string::npos) << result.err;
  }
  const std::string nowhere = folder_.File("none/new.gguf");
  const ChildResult refused =
      RunLkv({"train", "--traces", trace, "-o", nowhere});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find(nowhere + ": cannot be created"),
            std::string::npos)
      << refused.err;

  std::string left;
  std::getline(std::ifstream(good), left);
  EXPECT_EQ(left, "the one before");
}

// A trace with a second reading; without a model only a writer makes one.
void RecordReread(const std::string& path, const std::string& text,
                  uint32_t n_tokens) {
  auto writer = TraceWriter::Create(
      LocalFileSystem(), path,
      {.shape = {.n_layers = 1, .n_kv_heads = 1, .group = 1, .head_dim = 16},
       .layers = {0},
       .model = "0123",
       .text = text});
  ASSERT_TRUE(writer.ok());
  std::vector<float> mass;
  for (uint32_t step = 0; step < n_tokens; ++step) {
    mass.assign(step + 1, 1.0f / static_cast<float>(step + 1));
    (*writer)->AddStep(0, {.value_norm = 1,
                           .value_distance = 1,
                           .mass_max = mass.data(),
                           .mass_mean = mass.data()});
    if (HasExpectation(step)) (*writer)->AddExpectation(0, mass);
    ASSERT_TRUE((*writer)->FinishStep().ok());
  }
  ASSERT_TRUE((*writer)->AddReread(mass).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
}

TEST_F(TraceVerbTest, TheTrainingReportHoldsEveryFieldOfTheInterface) {
  const auto train = [&](uint32_t n_tokens) {
    RecordReread(folder_.File("a.trace"), "a", n_tokens);
    RecordReread(folder_.File("b.trace"), "b", n_tokens);
    return RunJson({"train", "--traces", folder_.File(""), "-o",
                    folder_.File("new.gguf"), "--minutes", "60"});
  };
  const nlohmann::json report = train(1024);
  EXPECT_GT(report["rows"], 0);
  EXPECT_GT(report["epochs"], 0);
  EXPECT_EQ(report["timed_out"], false);
  const nlohmann::json& holdout = report["holdout"];
  EXPECT_EQ(holdout["budget"], 0.25);
  EXPECT_EQ(holdout["texts"], 1);
  for (const char* field : {"mass_hit", "ema_mass_hit", "oracle_mass_hit",
                            "random_mass_hit", "regret"}) {
    EXPECT_TRUE(holdout[field].is_number()) << field;
  }
  EXPECT_TRUE(holdout["why_no_hits"].is_null());
  EXPECT_TRUE(std::filesystem::exists(folder_.File("new.gguf")));

  const nlohmann::json too_short = train(640)["holdout"];
  EXPECT_TRUE(too_short["mass_hit"].is_null());
  EXPECT_TRUE(too_short["regret"].is_null());
  EXPECT_NE(std::string(too_short["why_no_hits"]).find("25% of 640 tokens"),
            std::string::npos);
}

TEST_F(TraceVerbTest, PredictorsOfAnotherModelAreRefused) {
  const std::string trace = Synthesize("a.trace");
  const Words replay = {"bench", "policies",   "--trace",   trace,  "--budget",
                        "50%",   "--policies", "lookahead", "--set"};
  Words words = replay;
  words.push_back("predictor=mlp");
  const ChildResult none = RunLkv(words);
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("none was trained for this model"), std::string::npos)
      << none.err;
  words.back() = std::string("predictor=") + LKV_SOURCE_DIR +
                 "/predictors/smollm2-135m-instruct-q4_1.gguf";
  const ChildResult other = RunLkv(words);
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("was trained for another model"), std::string::npos)
      << other.err;
  words.back() = "predictor=" + trace + ".gguf";
  EXPECT_EQ(RunLkv(words).exit_code, 3);
}

}  // namespace
}  // namespace lkv::cli
