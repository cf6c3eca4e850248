// Everything about `lkv` that needs no model.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/exit_code.h"
#include "cli/parse_error.h"
#include "options/option_table.h"
#include "testing/child_process.h"
#include "testing/test_paths.h"

namespace lkv::cli {
namespace {

using Words = std::vector<std::string>;

std::string WriteFile(const std::string& name, const std::string& contents) {
  const std::string path = testing::TempDir() + "lkv_cli_" + name;
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

// One line that begins with "lkv: " and holds a remedy after "; ".
void ExpectOneLineError(const ChildResult& result, int exit_code) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(result.err.starts_with("lkv: ")) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
      << result.err;
  EXPECT_NE(result.err.find("; "), std::string::npos) << result.err;
}

TEST(CommandLineTest, WrongUseIsSaidInOneLineWithExitCode2) {
  for (const Words& words : std::vector<Words>{
           {},
           {"rnu"},
           {"config"},
           {"config", "shwo"},
           {"config", "show", "--foo"},
           {"config", "show", "--budget"},
           {"config", "show", "extra"},
           {"config", "show", "--set", "nothing"},
           {"config", "show", "--set", "bugdet=25%"},
           {"config", "show", "--budget", "much"},
           {"config", "show", "--seed", "-1"},
           {"config", "explain", "poliy"},
           {"config", "check"},
           {"run", "-p", "a", "-f", "b"},
           {"run", "-p", "a", "-n", "-1"},
           {"run", "-p", "a", "-n", "99999999999999999999"},
           {"run", "-p", "a", "--temp", "cold"},
           {"run", "-p", "a", "--temp", "-1"},
           {"run", "-p", "a", "-m", ""},
           {"run", "-f", ""},
           {"run", "-p", "a", "--config", ""},
           {"run", "-p", "a", "--grammar", ""},
           {"config", "check", ""},
           {"demo", "-f", ""},
           {"demo", "--context", "0"},
           {"run", "-p", "a", "--threads", "0"},
           {"run", "-p", "a", "--kv-type", "int3"},
           {"run", "-p", "a", "--activations", "low"},
           {"run", "-p", "a", "--system", "b"},
           {"run", "-p", ""},
           {"bench", "speed", "--depth", "deep"},
           {"bench", "speed", "--depth", "1,,2"},
           {"bench", "speed", "--depth", "1,"},
           {"bench", "speed", "--budget", ",full"},
           {"bench", "speed", "--batch", "0"},
           {"bench", "speed", "--shared-prompt"},
           {"demo", "--policies", "lru,,random"},
           {"run", "-p", "a", "--json=false"},
           {"run", "-p", "a", "-x"},
           {"bench", "kernels", "--filter", "no such kernel"},
           {"bench", "kernels", "--passes", "0"},
           {"bench", "io"},
           {"bench", "io", "--folder", ""},
           {"bench", "io", "--folder", "a", "--depth", "33"},
           {"bench", "speed", "--budget", "full,much"},
           {"demo", "--budget", "0%"},
           {"train", "--traces", "a", "-o", "b", "--minutes", "0"},
           {"demo", "--policies", "lru,best"}}) {
    SCOPED_TRACE(testing::PrintToString(words));
    ExpectOneLineError(RunLkv(words), 2);
  }
}

TEST(CommandLineTest, ConfigMemorySaysWhatFitsACard) {
  const ChildResult result =
      RunLkv({"config", "memory", "--layers", "32", "--kv-heads", "32",
              "--head-dim", "128", "--weights", "13GB", "--context", "32768",
              "--memory", "24GiB", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["bytes_per_token"], 512 * 1024);
  ASSERT_EQ(document["rows"].size(), 4u);
  EXPECT_EQ(document["rows"][0]["fits"], false);
  EXPECT_EQ(document["rows"][3]["fits"], true);
  for (const char* wrong : {"24", "full", "24 GiB"}) {
    EXPECT_EQ(RunLkv({"config", "memory", "--layers", "1", "--kv-heads", "1",
                      "--head-dim", "64", "--memory", wrong})
                  .exit_code,
              2);
  }
  EXPECT_EQ(RunLkv({"config", "memory", "--layers", "3"}).exit_code, 2);
  EXPECT_EQ(RunLkv({"config", "memory", "--layers", "1", "--kv-heads", "1",
                    "--head-dim", "272"})
                .exit_code,
            2);
}

TEST(CommandLineTest, AnOptionGivenTwiceOrWithoutItsValueIsNamed) {
  EXPECT_NE(RunLkv({"run", "-p", "a", "-p", "b"})
                .err.find("run: --prompt: given 2 times, give it once; "),
            std::string::npos);
  EXPECT_NE(RunLkv({"config", "show", "--budget"})
                .err.find("config show: --budget: stands without its value; "),
            std::string::npos);
}

TEST(ExplainParseErrorTest, WordsOfAnUnknownFormAreLeftAsTheyAre) {
  const CLI::App app;
  const CLI::ExcludesError error("these two differ",
                                 CLI::ExitCodes::ExcludesError);
  EXPECT_EQ(ExplainParseError(app, error).message(),
            "command line: these two differ; lkv -h shows what it takes");
}

TEST(MessageOfTest, WordsOnTheLengthNameOptions) {
  EXPECT_EQ(MessageOf(InvalidArgument("ctx_tokens: 9 is more; lower it or "
                                      "allow_beyond_trained")),
            "--ctx: 9 is more; lower it or --allow-beyond-trained");
  EXPECT_EQ(MessageOf(InvalidArgument("context: 9 are more than the 5 of "
                                      "ctx_tokens; raise ctx_tokens")),
            "context: 9 are more than the 5 of --ctx; raise --ctx");
}

TEST(MessageOfTest, OtherWordsAreLeftAsTheyAre) {
  const std::string path = "/ctx_tokens/m.gguf: is torn";
  EXPECT_EQ(MessageOf(InvalidArgument(path)), path);
  const std::string file = "context: no file of ctx_tokens";
  EXPECT_EQ(MessageOf(NotFound(file)), file);
}

TEST(CommandLineTest, WhatIsWrongIsSaidInPlainWords) {
  const std::pair<Words, std::string> cases[] = {
      {{"run", "--bugdet", "3"},
       "run: unknown option '--bugdet'; did you mean '--budget'?"},
      {{"run", "--budgett=5"},
       "run: unknown option '--budgett'; did you mean '--budget'?"},
      {{"run", "-p", "a", "--recent-tokens", "64"},
       "run: unknown option '--recent-tokens'; write --set "
       "recent_tokens=VALUE"},
      {{"--jsn", "config", "show"},
       "command line: unknown option '--jsn'; lkv -h shows what it takes"},
      {{"run", "--unheard-of", "3"},
       "run: unknown option '--unheard-of'; lkv run -h shows what it takes"},
      {{"config", "show", "extra"},
       "config show: 'extra' stands where nothing belongs; lkv config show -h "
       "shows what it takes"},
      {{"run", "-n", "abc"},
       "run: --new-tokens: 'abc' is no whole number from 0 to 16777216; lkv "
       "run -h shows what it takes"},
      {{"run", "-n", "5.5"},
       "run: --new-tokens: '5.5' is no whole number from 0 to 16777216; lkv "
       "run -h shows what it takes"},
      {{"run", "--temp", "cold"},
       "run: --temp: 'cold' is no number that it takes; lkv run -h shows what "
       "it takes"},
      {{"run", "--activations", "low"},
       "run: --activations: 'low' is none of auto | high; lkv run -h shows "
       "what it takes"},
      {{"run", "-p", "a", "-f", "b"},
       "run: --prompt: cannot stand beside --file; lkv run -h shows what it "
       "takes"},
      {{"config", "check"},
       "config check: file: is missing; lkv config check -h shows what it "
       "takes"},
      {{"config", "show", "--json=false"},
       "config show: --json: takes no value; lkv config show -h shows what it "
       "takes"},
      {{"bench", "speed", "--depth", "1,,2"},
       "bench speed: --depth: '1,,2' has an empty place in its list; lkv bench "
       "speed -h shows what it takes"},
      {{"bench", "speed", "--depth", "1,x"},
       "bench speed: --depth: 'x' is no whole number from 0 to 1048576; lkv "
       "bench speed -h shows what it takes"}};
  for (const auto& [words, message] : cases) {
    SCOPED_TRACE(testing::PrintToString(words));
    EXPECT_EQ(RunLkv(words).err, "lkv: " + message + "\n");
  }
}

TEST(CommandLineTest, HelpShowsNoTypesOfTheParser) {
  for (const Words& words : std::vector<Words>{{"run", "-h"},
                                               {"bench", "speed", "-h"},
                                               {"bench", "kernels", "-h"},
                                               {"bench", "io", "-h"},
                                               {"demo", "-h"}}) {
    const std::string help = RunLkv(words).out;
    EXPECT_EQ(help.find("UINT"), std::string::npos) << help;
    EXPECT_EQ(help.find(":{"), std::string::npos) << help;
    EXPECT_NE(help.find("-h, --help"), std::string::npos) << help;
  }
}

// The model is none, so what is wrong must have been said before it was read.
TEST(CommandLineTest, NumbersOfTheSamplerAreCheckedBeforeTheModelIsLoaded) {
  const std::pair<std::string, std::string> cases[] = {
      {"--temp", "nan"},   {"--temp", "101"},          {"--temp", "inf"},
      {"--top-k", "-1"},   {"--top-p", "0"},           {"--top-p", "nan"},
      {"--min-p", "1.5"},  {"--min-p", "nan"},         {"--top-p", "-0.5"},
      {"--min-p", "-0.1"}, {"--repeat-penalty", "0"},  {"--temp", "-inf"},
      {"--top-p", "1.01"}, {"--repeat-penalty", "nan"}};
  for (const auto& [option, value] : cases) {
    for (const char* verb : {"run", "chat"}) {
      const ChildResult result = RunLkv({verb, "-m", "/no", option, value});
      ExpectOneLineError(result, 2);
      EXPECT_NE(result.err.find(value + " is not in "), std::string::npos)
          << result.err;
    }
  }
}

TEST(CommandLineTest, MoreThreadsThanCoresAreRemarkedOn) {
  const ChildResult result =
      RunLkv({"run", "-p", "a", "-m", "/no/such.gguf", "--threads", "256"});
  EXPECT_EQ(result.err.find("lkv: --threads: 256 threads share the "), 0u)
      << result.err;
}

TEST(CommandLineTest, AVariableThatNothingReadsIsRemarkedOn) {
  ChildOptions options;
  options.environment = {{"LKV_TEMPERATURE", "1"}};
  const ChildResult result = RunLkv({"config", "show"}, options);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err.find("lkv: environment: unknown variable "
                            "'LKV_TEMPERATURE' is ignored; "),
            0u)
      << result.err;
}

// With --json, stdout holds one document whatever happens.
TEST(CommandLineTest, AnErrorIsAlsoADocumentWhereOneWasAskedFor) {
  const std::pair<Words, std::string> cases[] = {
      {{"rnu"}, "wrong_use"},
      {{"run", "-p", "a", "--temp", "cold"}, "wrong_use"},
      {{"run", "-p", ""}, "wrong_use"},
      {{"run", "-p", "a", "-m", "/no/such.gguf"}, "missing"},
      {{"demo", "--budget", "much"}, "wrong_use"},
      {{"demo", "-m", "/no/such.gguf"}, "missing"},
      {{"bench", "speed", "--gen", "-1"}, "wrong_use"},
      {{"bench", "speed", "-m", "/no/such.gguf"}, "missing"},
      {{"config", "show", "--set", "bugdet=25%"}, "wrong_use"},
      {{"config", "check", "/no/such.yaml"}, "missing"},
      {{"config", "explain", "poliy"}, "wrong_use"},
  };
  for (auto [words, code] : cases) {
    words.push_back("--json");
    SCOPED_TRACE(testing::PrintToString(words));
    const ChildResult result = RunLkv(words);
    EXPECT_EQ(result.exit_code, code == "missing" ? 3 : 2);
    ASSERT_TRUE(nlohmann::json::accept(result.out)) << result.out;
    const auto error = nlohmann::json::parse(result.out)["error"];
    EXPECT_EQ(error["code"], code);
    EXPECT_EQ("lkv: " + error["message"].get<std::string>() + "\n", result.err);
  }
}

TEST(CommandLineTest, AMessageShowsControlCharactersInsteadOfObeyingThem) {
  const std::string evil = "/no\x1b]0;owned\x07\xff\r\nsuch";
  const std::string file =
      WriteFile("evil.yaml", "lookahead_kv:\n  \"\\e[2J\": 1\n");
  for (const Words& words :
       std::vector<Words>{{evil},
                          {"run", "--" + evil},
                          {"run", "-p", "a", "-m", evil},
                          {"run", "-f", evil},
                          {"run", "-p", "a", "--grammar", evil},
                          {"run", "-p", "a", "--temp", evil},
                          {"run", "-p", "a", "--budget", evil},
                          {"run", "-p", "a", "--set", evil},
                          {"run", "-p", "a", "--set", evil + "=1"},
                          {"demo", "--policies", evil},
                          {"bench", "speed", "--depth", evil},
                          {"config", "check", evil},
                          {"config", "check", file},
                          {"config", "explain", evil}}) {
    const ChildResult result = RunLkv(words);
    EXPECT_NE(result.exit_code, 0);
    for (const char c : result.err) {
      ASSERT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << result.err;
    }
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
    EXPECT_NE(result.err.find("\\x1b"), std::string::npos) << result.err;
  }
}

TEST(CommandLineTest, KernelRowsHoldEveryFieldOfTheInterface) {
  const ChildResult result =
      RunLkv({"bench", "kernels", "--filter", "tile4/x8", "--passes", "1",
              "--threads", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json rows = nlohmann::json::parse(result.out)["rows"];
  ASSERT_EQ(rows.size(), 4u);
  for (const nlohmann::json& row : rows) {
    for (const char* field : {"kernel", "isa", "n", "threads", "gb_s",
                              "gflop_s", "ratio_to_stream"}) {
      EXPECT_TRUE(row.contains(field)) << field;
    }
    EXPECT_NE(row["gb_s"].is_null(), row["gflop_s"].is_null());
    EXPECT_EQ(row["gb_s"].is_null(), row["ratio_to_stream"].is_null());
  }
}

TEST(CommandLineTest, IoRowsHoldEveryFieldAndTheFolderNothingAfterwards) {
  const TempFolder temp;
  const std::string folder = temp.File("io");
  const ChildResult result =
      RunLkv({"bench", "io", "--folder", folder, "--depth", "4", "--file-mib",
              "1", "--passes", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json rows = nlohmann::json::parse(result.out)["rows"];
  ASSERT_FALSE(rows.empty());
  for (const nlohmann::json& row : rows) {
    for (const char* field :
         {"method", "description", "depth", "reads_per_second", "latency_us",
          "submit_us", "cpu_us"}) {
      EXPECT_TRUE(row.contains(field)) << field;
    }
    EXPECT_EQ(row["depth"], 4);
    EXPECT_TRUE(row["latency_us"].contains("p99"));
    EXPECT_TRUE(row["submit_us"].contains("p50"));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1)
      << "the lock";
  const ChildResult missing =
      RunLkv({"bench", "io", "--folder", folder + "/a/b"});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_NE(missing.err.find(folder + "/a/b: "), std::string::npos);
}

TEST(CommandLineTest, OneCoreMeansOneThreadAndMoreAreRemarkedOn) {
  ChildOptions one_core;
  one_core.one_core = true;
  std::vector<std::string> words = {"bench",           "kernels",  "--filter",
                                    "matmul/tile4/x8", "--passes", "1",
                                    "--json"};
  const auto threads = [&](const ChildResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto document = nlohmann::json::parse(result.out, nullptr, false);
    return document["rows"][0]["threads"].get<uint32_t>();
  };
  const ChildResult by_default = RunLkv(words, one_core);
  EXPECT_EQ(threads(by_default), 1u);
  EXPECT_EQ(by_default.err, "");
  words.insert(words.end(), {"--threads", "3"});
  const ChildResult three = RunLkv(words, one_core);
  EXPECT_EQ(threads(three), 3u);
  EXPECT_EQ(three.err.find("lkv: --threads: 3 threads share the one core "), 0u)
      << three.err;
}

// Sanitizers reserve terabytes of addresses.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(CommandLineTest, AMeasurementThatGetsNoMemoryIsAnError) {
  ChildOptions little;
  little.address_limit_bytes = 200'000'000;
  const ChildResult result = RunLkv({"bench", "kernels"}, little);
  ExpectOneLineError(result, 1);
  EXPECT_NE(result.err.find("256.0 MiB"), std::string::npos) << result.err;
}
#endif

TEST(CommandLineTest, AFileThatMayNotGrowIsAnErrorNotASignal) {
  ChildOptions full;
  full.stdout_path = WriteFile("full.txt", "");
  full.may_fill_files = false;
  EXPECT_EQ(RunLkv({"config", "show"}, full).exit_code, 1);
}

TEST(CommandLineTest, AnEmptyStdinIsAnEmptyPrompt) {
  const ChildResult result = RunLkv({"run"});
  ExpectOneLineError(result, 2);
  EXPECT_NE(result.err.find("prompt: is empty"), std::string::npos);
}

TEST(CommandLineTest, NearestVerbAndKeyAreNamed) {
  EXPECT_NE(RunLkv({"rnu"}).err.find("did you mean 'run'?"), std::string::npos);
  EXPECT_NE(RunLkv({"config", "shwo"}).err.find("did you mean 'show'?"),
            std::string::npos);
  EXPECT_NE(
      RunLkv({"config", "explain", "poliy"}).err.find("did you mean 'policy'?"),
      std::string::npos);
}

TEST(CommandLineTest, WhatIsMissingGivesExitCode3) {
  const std::string text = WriteFile("not_a_model", "GG but no UF");
  const std::string empty = WriteFile("empty", "");
  for (const Words& words :
       std::vector<Words>{{"config", "check", "/no/such.yaml"},
                          {"run", "-f", "/no/such.txt"},
                          {"run", "-f", "/tmp"},
                          {"run", "-p", "a", "--config", "/no/such.yaml"},
                          {"run", "-p", "a", "--grammar", "/no/such.gbnf"},
                          {"run", "-p", "a", "-m", "/no/such.gguf"},
                          {"run", "-p", "a", "-m", "/tmp"},
                          {"run", "-p", "a", "-m", text},
                          {"run", "-p", "a", "-m", empty},
                          {"chat", "-m", text},
                          {"demo", "-m", text},
                          {"bench", "speed", "-m", text}}) {
    SCOPED_TRACE(testing::PrintToString(words));
    ExpectOneLineError(RunLkv(words), 3);
  }
}

TEST(CommandLineTest, TheModelComesFromTheVariableWhenNotGiven) {
  ChildOptions options;
  options.environment = {{"LKV_MODEL", "/no/such/variable.gguf"}};
  EXPECT_NE(
      RunLkv({"run", "-p", "a"}, options).err.find("/no/such/variable.gguf"),
      std::string::npos);
  EXPECT_NE(RunLkv({"run", "-p", "a", "-m", "/given.gguf"}, options)
                .err.find("/given.gguf"),
            std::string::npos);
}

TEST(CommandLineTest, EveryVerbShowsAnExample) {
  for (const Words& words : std::vector<Words>{{"-h"},
                                               {"run", "-h"},
                                               {"chat", "-h"},
                                               {"demo", "-h"},
                                               {"bench", "-h"},
                                               {"bench", "speed", "-h"},
                                               {"bench", "kernels", "-h"},
                                               {"bench", "io", "-h"},
                                               {"config", "-h"},
                                               {"config", "show", "-h"},
                                               {"config", "check", "-h"},
                                               {"config", "explain", "-h"},
                                               {"config", "presets", "-h"}}) {
    SCOPED_TRACE(testing::PrintToString(words));
    const ChildResult result = RunLkv(words);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_NE(result.out.find("Example:\n  "), std::string::npos);
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
}

TEST(CommandLineTest, VersionIsOneLine) {
  const ChildResult result = RunLkv({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.out.starts_with("lkv "));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
}

TEST(ConfigVerbTest, ShowNamesTheOriginOfEveryValue) {
  const std::string file =
      WriteFile("show.yaml", "lookahead_kv:\n  sink_tokens: 8\n");
  ChildOptions options;
  options.environment = {{"LKV_RECENT_TOKENS", "64"}};
  const ChildResult result =
      RunLkv({"config", "show", "--config", file, "--budget", "25%", "--set",
              "preset=code", "--json"},
             options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out);
  std::map<std::string, std::pair<std::string, std::string>> shown;
  for (const auto& value : document["values"]) {
    shown[value["key"]] = {value["value"], value["origin"]};
  }
  EXPECT_EQ(shown.size(), OptionTable().size());
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(shown["budget"], Pair("25%", "--budget"));
  EXPECT_EQ(shown["recent_tokens"], Pair("64", "LKV_RECENT_TOKENS"));
  EXPECT_EQ(shown["sink_tokens"], Pair("8", file + ":2"));
  EXPECT_EQ(shown["prediction_steps"], Pair("10", "preset code"));
  EXPECT_EQ(shown["temporal_decay"], Pair("0.9", "default"));
}

TEST(ConfigVerbTest, CheckNamesFileLineAndNearestKey) {
  const std::string good = WriteFile("good.yaml", "lookahead_kv: {}\n");
  EXPECT_EQ(RunLkv({"config", "check", good}).exit_code, 0);
  const std::string bad =
      WriteFile("bad.yaml", "lookahead_kv:\n  base_windw: 1\n");
  const ChildResult result = RunLkv({"config", "check", bad});
  ExpectOneLineError(result, 2);
  EXPECT_EQ(result.err, "lkv: " + bad +
                            ":2: unknown key 'base_windw'; did you mean "
                            "'base_window'?\n");
}

TEST(ConfigVerbTest, EveryFormOfOutputWorks) {
  for (const Words& words : std::vector<Words>{{"config", "show"},
                                               {"config", "explain"},
                                               {"config", "explain", "budget"},
                                               {"config", "presets"}}) {
    SCOPED_TRACE(testing::PrintToString(words));
    EXPECT_NE(RunLkv(words).out, "");
    Words with_json = words;
    with_json.push_back("--json");
    EXPECT_TRUE(nlohmann::json::accept(RunLkv(with_json).out));
  }
  EXPECT_EQ(RunLkv({"config", "explain", "--markdown"}).out,
            OptionTableMarkdown());
}

TEST(OutputTest, AClosedPipeEndsQuietlyWithExitCode1) {
  ChildOptions options;
  options.close_stdout = true;
  const ChildResult result = RunLkv({"config", "show"}, options);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "");
}

TEST(OutputTest, AFullDiskIsReported) {
  ChildOptions options;
  options.stdout_path = "/dev/full";
  const ChildResult result = RunLkv({"config", "show"}, options);
  ExpectOneLineError(result, 1);
}

}  // namespace
}  // namespace lkv::cli
