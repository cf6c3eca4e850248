// Sessions of `lkv run` and `lkv chat`, with a real model.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/testing_runs.h"
#include "testing/child_process.h"
#include "testing/test_paths.h"

namespace lkv::cli {
namespace {

using nlohmann::json;

class SessionTest : public testing::Test {
 protected:
  ChildOptions Options(const std::string& input = {}) {
    ChildOptions options;
    options.input = input;
    options.environment = {{"LKV_SESSIONS_PATH", folder_.File("sessions")}};
    return options;
  }
  std::string TextFile(size_t n_sentences, const std::string& end) {
    std::string text;
    for (size_t i = 0; i < n_sentences; ++i) {
      text += "Line " + std::to_string(i) + " says " +
              std::to_string(i * 37 % 101) + ".\n";
    }
    const std::string path = folder_.File("text");
    std::ofstream(path) << text << end;
    return path;
  }
  json RunSession(const std::string& path, Words more) {
    Words words = {"run", "-f", path,        "--ignore-eos",
                   "-n",  "8",  "--session", "one"};
    words.insert(words.end(), more.begin(), more.end());
    return RunJson(words, Options());
  }

  TempFolder folder_;
};

TEST_F(SessionTest, ASecondRunReadsOnlyWhatIsNew) {
  const json first = RunSession(TextFile(60, ""), {"--policy", "full"});
  EXPECT_EQ(first["cached_tokens"], 0);
  EXPECT_EQ(first["session"]["miss"], "no_session");
  const uint32_t n_first = first["prompt_tokens"];
  EXPECT_EQ(first["session"]["saved"]["tokens"], n_first + 7);

  const std::string path = TextFile(60, "And the last one?");
  const json second = RunSession(path, {"--policy", "full"});
  EXPECT_EQ(second["cached_tokens"], n_first);
  EXPECT_EQ(second["session"]["restored_from"], "one");
  EXPECT_EQ(second["prefill"]["tokens"],
            second["prompt_tokens"].get<uint32_t>() - n_first);
  const json anew = RunJson(
      {"run", "-f", path, "--ignore-eos", "-n", "8", "--policy", "full"});
  EXPECT_EQ(anew["session"], nullptr);
  EXPECT_EQ(second["text"], anew["text"]);

  const json other = RunSession(path, {"--kv-type", "int8"});
  EXPECT_EQ(other["cached_tokens"], 0);
  EXPECT_EQ(other["session"]["miss"], "other_fingerprint");
  EXPECT_EQ(other["session"]["miss_detail"], "kv_type is f16 instead of int8");
}

TEST_F(SessionTest, WhatCannotBeKeptIsAnErrorBehindTheAnswer) {
  const std::string path = TextFile(60, "");
  const ChildResult result =
      RunLkv(WithModel({"run", "-f", path, "-n", "4", "--session", "a", "--set",
                        "sessions.bytes=1MiB"}),
             Options());
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_FALSE(result.out.empty());
  EXPECT_NE(result.err.find("raise sessions.bytes"), std::string::npos)
      << result.err;
}

TEST_F(SessionTest, AChatGoesOnAsIfItHadNeverEnded) {
  const std::string first = "My name is Ada.\n", second = "What is my name?\n";
  const auto chat = [&](const std::string& input, Words more) {
    Words words = {"chat", "-n", "12", "--temp", "0", "--budget", "60%"};
    words.insert(words.end(), more.begin(), more.end());
    const ChildResult result = RunLkv(WithModel(words), Options(input));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  };
  const std::string whole = chat(first + second, {}).out;
  const ChildResult one = chat(first, {"--session", "talk"});
  EXPECT_NE(one.err.find("session 'talk' kept: 2 messages, "),
            std::string::npos)
      << one.err;
  const ChildResult two = chat(second, {"--session", "talk"});
  EXPECT_NE(two.err.find("session 'talk' goes on: 2 messages, "),
            std::string::npos)
      << two.err;
  EXPECT_NE(two.err.find(" of 'talk' in "), std::string::npos) << two.err;
  EXPECT_EQ(one.out + two.out, whole);

  const ChildResult again =
      RunLkv(WithModel({"chat", "--session", "talk", "--system", "Other."}),
             Options("Hi\n"));
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.err.find("another system prompt"), std::string::npos);
}

TEST_F(SessionTest, EveryTurnIsKeptWhereDurabilityIsAlways) {
  const ChildResult result =
      RunLkv(WithModel({"chat", "-n", "4", "--session", "talk", "--set",
                        "sessions.durability=always"}),
             Options("One.\n/save\nTwo.\n"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  size_t n_kept = 0;
  for (size_t at = 0;
       (at = result.err.find(" kept: ", at)) != std::string::npos; ++at) {
    ++n_kept;
  }
  EXPECT_EQ(n_kept, 2u);
  EXPECT_NE(result.err.find("/save: nothing is new"), std::string::npos);
}

TEST_F(SessionTest, TheBenchmarkLeavesNothingAndFindsTheSameLogits) {
  const ChildResult result =
      RunLkv({"bench", "sessions", "-m", TestModelPath(), "--tokens", "100,300",
              "--rounds", "2", "--policy", "full", "--json"},
             Options());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json document = json::parse(result.out);
  ASSERT_EQ(document["rows"].size(), 2u);
  for (const json& row : document["rows"]) {
    EXPECT_EQ(row["same_logits"], true);
    EXPECT_GT(row["ratio"]["min"], 0);
    EXPECT_GT(row["bytes"], row["tokens"].get<uint64_t>() * 23040);
  }
  const json list =
      json::parse(RunLkv({"session", "list", "--json"}, Options()).out);
  EXPECT_EQ(list["sessions"].size(), 0u);
}

TEST_F(SessionTest, ARunIsNoChat) {
  RunSession(TextFile(2, ""), {});
  const ChildResult result =
      RunLkv(WithModel({"chat", "--session", "one"}), Options("Hi\n"));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("was not kept by a chat"), std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace lkv::cli
