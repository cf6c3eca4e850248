// `lkv run` and `lkv chat` with a real model.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/testing_runs.h"
#include "testing/child_process.h"
#include "testing/test_paths.h"

namespace lkv::cli {
namespace {

using nlohmann::json;

std::string LongText(size_t n_words) {
  std::ostringstream text;
  for (size_t i = 0; i < n_words; ++i) text << "word" << i % 7 << ' ';
  return text.str();
}

TEST(DemoTest, RowsAreTheFullCacheAndThePoliciesAskedFor) {
  const json document =
      RunJson({"demo", "-f", LKV_SOURCE_DIR "/LICENSE", "--context", "480",
               "--budget", "75%", "--policies", "fifo,random"});
  ASSERT_EQ(document["rows"].size(), 3);
  EXPECT_EQ(document["rows"][0]["policy"], "full");
  EXPECT_EQ(document["rows"][1]["policy"], "fifo");
  EXPECT_EQ(document["rows"][2]["policy"], "random");
  EXPECT_EQ(document["context_tokens"], 480);
}

// Pages of int8 take too little for a third of weights and KV to be saved.
TEST(DemoTest, TheSourceTableNeedsABudgetOfItsOwnOnlyWhereNoneIsNamed) {
  const Words demo = {"demo", "--source-table", "--kv-type", "int8"};
  const ChildResult unnamed = RunLkv(WithModel(demo));
  EXPECT_EQ(unnamed.exit_code, 2);
  EXPECT_NE(unnamed.err.find("of KV together none saves"), std::string::npos)
      << unnamed.err;
  Words words = demo;
  words.insert(words.end(), {"--budget", "1MiB"});
  const ChildResult named = RunLkv(WithModel(words));
  EXPECT_EQ(named.exit_code, 2);
  EXPECT_NE(named.err.find("budget: 1048576 bytes cannot"), std::string::npos)
      << named.err;
}

TEST(BenchSpeedTest, TheConfigurationSaysWhatIsMeasured) {
  const ChildResult result =
      RunLkv({"bench", "speed", "-m", TestModelPath(), "--depth", "8", "--gen",
              "2", "--prefill", "0", "--set", "kv_type=int8", "--set",
              "budget=full", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto rows = json::parse(result.out)["rows"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["kv_type"], "int8");
  EXPECT_EQ(rows[0]["budget"], "full");
  EXPECT_GT(rows[0]["read_bytes_per_step"], 90'000'000);
  EXPECT_GT(rows[0]["ratio_to_stream"], 0);
}

TEST(DemoTest, WhyLessIsReadThanAskedForIsSaid) {
  const ChildResult result = RunLkv(
      WithModel({"demo", "-f", LKV_SOURCE_DIR "/CMakeLists.txt", "--context",
                 "100000", "--budget", "75%", "--policies", "lru"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* note :
       {"lkv: demo: the model was trained for 8,192 tokens, so 7,936 are read "
        "instead of 100,000, and 256 follow\n",
        "lkv: demo: the text is shorter than 7,936 and 256 tokens, so "}) {
    EXPECT_NE(result.err.find(note), std::string::npos) << result.err;
  }
}

// A copy of the model with some bytes of its head replaced by as many others,
// wherever they stand.
class ChangedModel {
 public:
  ChangedModel(std::string_view from, std::string_view to)
      : path_(testing::TempDir() + "lkv_changed.gguf") {
    EXPECT_EQ(from.size(), to.size());
    std::filesystem::copy_file(
        TestModelPath(), path_,
        std::filesystem::copy_options::overwrite_existing);
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    std::string head(4 << 20, '\0');
    file.read(head.data(), static_cast<std::streamsize>(head.size()));
    size_t at = head.find(from);
    EXPECT_NE(at, head.npos);
    for (; at != head.npos; at = head.find(from, at)) {
      file.seekp(static_cast<std::streamoff>(at));
      file << to;
      at += from.size();
    }
  }
  ~ChangedModel() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(DemoTest, WithoutAChatTemplateNoQuestionIsAsked) {
  const ChangedModel model("tokenizer.chat_template",
                           "tokenizer.chat_templat_");
  const ChildResult demo =
      RunLkv({"demo", "-m", model.path(), "--context", "480", "--budget", "75%",
              "--policies", "lru"});
  EXPECT_EQ(demo.exit_code, 0) << demo.err;
  EXPECT_NE(demo.out.find("No question was asked: the model carries no chat "
                          "template."),
            std::string::npos)
      << demo.out;
  const ChildResult chat = RunLkv({"chat", "-m", model.path()});
  EXPECT_EQ(chat.exit_code, 2);
  EXPECT_NE(chat.err.find("no chat template; lkv run continues"),
            std::string::npos)
      << chat.err;
}

TEST(DemoTest, WithATemplateOfAnUnknownKindNoQuestionIsAsked) {
  const ChangedModel model("<|im_start|>", "<|im_sturt|>");
  const ChildResult demo =
      RunLkv({"demo", "-m", model.path(), "--context", "480", "--budget", "75%",
              "--policies", "lru"});
  EXPECT_EQ(demo.exit_code, 0) << demo.err;
  EXPECT_NE(demo.out.find("No question was asked: the model's chat template "
                          "is of an unknown kind."),
            std::string::npos)
      << demo.out;
}

TEST(RunTest, WhatCannotFitIsRefusedBeforeTheWeightsAreRead) {
  const std::string damaged = testing::TempDir() + "damaged_weights.gguf";
  std::filesystem::copy_file(TestModelPath(), damaged,
                             std::filesystem::copy_options::overwrite_existing);
  {
    std::fstream file(damaged, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4096, std::ios::end);
    file << std::string(4096, '\xff');  // scales that are no numbers
  }
  const std::vector<std::string> words = {
      "run", "-m", damaged, "-p", "a", "--allow-beyond-trained", "-n"};
  const auto run = [&](const std::string& n) {
    std::vector<std::string> all = words;
    all.push_back(n);
    return RunLkv(all);
  };
  EXPECT_EQ(run("1").exit_code, 3);
  const ChildResult result = run("16000000");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("shorter context"), std::string::npos)
      << result.err;
  std::filesystem::remove(damaged);
}

TEST(RunTest, JsonHoldsEveryFieldOfTheInterface) {
  const json document = RunJson(
      {"run", "-p", "The capital of France is", "-n", "4", "--measure-hits"});
  for (const char* field : {"/text",
                            "/prompt_tokens",
                            "/cached_tokens",
                            "/generated_tokens",
                            "/stop_reason",
                            "/prefill/tokens",
                            "/prefill/seconds",
                            "/prefill/tokens_per_second",
                            "/decode/tokens_per_second",
                            "/decode/step_us/p50",
                            "/decode/step_us/p95",
                            "/decode/step_us/p99",
                            "/decode/step_us/max",
                            "/decode/policy_share",
                            "/kv/policy",
                            "/kv/kv_type",
                            "/kv/budget_bytes",
                            "/kv/resident_bytes_max",
                            "/kv/full_bytes",
                            "/kv/metadata_bytes",
                            "/kv/read_bytes_per_step",
                            "/kv/evicted_tokens",
                            "/kv/tiers/L1",
                            "/kv/tiers/L2",
                            "/kv/tiers/L3",
                            "/hit/mass",
                            "/hit/topk",
                            "/hit/raw",
                            "/hit/sampled_steps"}) {
    EXPECT_TRUE(document.contains(json::json_pointer(field))) << field;
  }
  EXPECT_EQ(document["generated_tokens"], 4);
  EXPECT_EQ(document["stop_reason"], "length");
  EXPECT_NE(document["text"].get<std::string>().find("Paris"),
            std::string::npos);
}

TEST(RunTest, OneCoreAndNoHugePagesChangeOnlyTheSpeed) {
  const std::vector<std::string> words = {"run", "-p", "Boats float because",
                                          "-n", "8"};
  const std::string text = RunJson(words)["text"];
  ChildOptions one_core;
  one_core.one_core = true;
  EXPECT_EQ(RunJson(words, one_core)["text"], text);
  ChildOptions small_pages;
  small_pages.deny_huge_pages = true;
  EXPECT_EQ(RunJson(words, small_pages)["text"], text);
}

// A team whose members share a core must still get through its phases.
TEST(RunTest, MoreThreadsThanCoresWorkAndAreRemarkedOn) {
  const std::vector<std::string> words = {"run", "-p", "Boats float because",
                                          "-n",  "4",  "--json"};
  std::vector<std::string> crowded = words;
  crowded.insert(crowded.end(), {"--threads", "4"});
  ChildOptions one_core;
  one_core.one_core = true;
  const ChildResult result = RunLkv(WithModel(crowded), one_core);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err.find("lkv: --threads: 4 threads share the one core "),
            0u)
      << result.err;
  EXPECT_EQ(json::parse(result.out, nullptr, false)["text"],
            json::parse(RunLkv(WithModel(words)).out, nullptr, false)["text"]);
}

TEST(RunTest, PlainTextGoesToStdoutAndStatsToStderr) {
  const ChildResult result =
      RunLkv(WithModel({"run", "-p", "The capital of France is", "-n", "2"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, " Paris.\n");
  EXPECT_NE(result.err.find("generated  2 tokens"), std::string::npos);
  EXPECT_EQ(result.err.find('\x1b'), std::string::npos)
      << "no escape codes outside a terminal";
}

TEST(RunTest, NoNewTokensOnlyReadsThePrompt) {
  const json document = RunJson({"run", "-p", "Hello", "-n", "0"});
  EXPECT_EQ(document["generated_tokens"], 0);
  EXPECT_EQ(document["text"], "");
  EXPECT_EQ(document["prefill"]["tokens"], document["prompt_tokens"]);
}

TEST(RunTest, ThePromptMayComeFromStdinAndNeedNotBeUtf8) {
  ChildOptions options;
  options.input = std::string("caf\xe9 \xff\xfe \x00 end", 13);
  const json document = RunJson({"run", "-n", "2"}, options);
  EXPECT_GT(document["prompt_tokens"], 4);
}

TEST(RunTest, ABudgetHoldsAndItsEvictionsAreExplained) {
  ChildOptions options;
  options.input = LongText(600);
  const ChildResult result = RunLkv(
      WithModel({"run", "-n", "4", "--budget", "50%", "--explain", "--json"}),
      options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json document = json::parse(result.out);
  EXPECT_LE(document["kv"]["resident_bytes_max"],
            document["kv"]["budget_bytes"]);
  EXPECT_GT(document["kv"]["evicted_tokens"], 0);
  EXPECT_EQ(document["hit"], nullptr);
  EXPECT_NE(result.err.find("Stay longest"), std::string::npos);
  EXPECT_NE(result.err.find("Left every layer and head"), std::string::npos);
}

TEST(RunTest, ABudgetThatIsTooSmallIsRefusedWithTheSmallest) {
  ChildOptions options;
  options.input = LongText(600);
  const ChildResult result =
      RunLkv(WithModel({"run", "-n", "4", "--budget", "16"}), options);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_EQ(result.out, "");
  // What the message names can be typed: a bare number would be tokens.
  const size_t at = result.err.find("use at least ");
  ASSERT_NE(at, std::string::npos) << result.err;
  const size_t end = result.err.find(' ', at + 13);
  const std::string smallest = result.err.substr(at + 13, end - at - 13);
  EXPECT_TRUE(smallest.ends_with('B')) << smallest;
  EXPECT_EQ(RunLkv(WithModel({"run", "-n", "4", "--budget", smallest}), options)
                .exit_code,
            0);
}

TEST(RunTest, AShareThatIsTooSmallIsRaisedWithANotice) {
  ChildOptions options;
  options.input = LongText(600);
  const ChildResult result =
      RunLkv(WithModel({"run", "-n", "1", "--budget", "1%"}), options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("lkv: budget: 1% is "), std::string::npos)
      << result.err;
}

TEST(RunTest, APromptBeyondTheTrainedLengthIsRefusedWithBothNumbers) {
  ChildOptions options;
  options.input = LongText(6000);
  const ChildResult result = RunLkv(WithModel({"run", "-n", "1"}), options);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("8192"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("or --allow-beyond-trained\n"), std::string::npos)
      << result.err;
}

TEST(RunTest, RefusalsNameOptionsNotFields) {
  const auto error = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"run", "-p", "a"});
    return RunLkv(WithModel(words)).err;
  };
  EXPECT_NE(error({"--ctx", "9000"}).find("lkv: --ctx: 9000 is more than"),
            std::string::npos);
  EXPECT_NE(error({"--ctx", "100", "-n", "200"}).find("or raise --ctx\n"),
            std::string::npos);
}

TEST(RunTest, ATruncatedModelIsNamed) {
  const std::string path = testing::TempDir() + "lkv_truncated.gguf";
  std::ifstream whole(TestModelPath(), std::ios::binary);
  std::string head(4 << 20, '\0');
  whole.read(head.data(), static_cast<std::streamsize>(head.size()));
  std::ofstream(path, std::ios::binary) << head;
  const ChildResult result = RunLkv({"run", "-p", "a", "-m", path});
  std::filesystem::remove(path);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find(path), std::string::npos) << result.err;
}

TEST(RunTest, ABrokenGrammarIsWrongUse) {
  const std::string path = testing::TempDir() + "lkv_broken.gbnf";
  std::ofstream(path) << "root ::= (";
  const ChildResult result =
      RunLkv(WithModel({"run", "-p", "a", "--grammar", path}));
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_TRUE(result.err.starts_with("lkv: " + path + ":1: ")) << result.err;
}

TEST(RunTest, AGrammarShapesTheAnswer) {
  const std::string path = testing::TempDir() + "lkv_yes.gbnf";
  std::ofstream(path) << "root ::= \"yes\" | \"no\"\n";
  const json document =
      RunJson({"run", "-p", "Is water wet? ", "--grammar", path});
  const std::string text = document["text"];
  EXPECT_TRUE(text == "yes" || text == "no") << text;
}

TEST(RunTest, TheChatTemplateIsApplied) {
  const json plain = RunJson({"run", "-p", "Hello", "-n", "1"});
  const json chat = RunJson({"run", "-p", "Hello", "-n", "1", "--chat"});
  EXPECT_GT(chat["prompt_tokens"], plain["prompt_tokens"]);
}

TEST(RunTest, AClosedPipeEndsQuietly) {
  ChildOptions options;
  options.close_stdout = true;
  const ChildResult result = RunLkv(
      WithModel({"run", "-p", "Hello", "-n", "64", "--ignore-eos"}), options);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "");
}

TEST(InterruptTest, StopsInLoading) {
  ChildOptions options;
  options.interrupt_at = "loading";
  const ChildResult result =
      RunLkv(WithModel({"run", "-p", "Hello", "--json"}), options);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_TRUE(
      result.err.ends_with("lkv: interrupted; nothing was finished\r\n"))
      << result.err;
  ASSERT_TRUE(json::accept(result.out)) << result.out;
  EXPECT_EQ(json::parse(result.out)["error"]["code"], "interrupted");
}

TEST(InterruptTest, AMeasurementLeavesADocument) {
  for (int signal : {SIGINT, SIGTERM}) {
    ChildOptions options;
    options.interrupt_at = "full cache";
    options.interrupt_signal = signal;
    const ChildResult result = RunLkv(WithModel({"demo", "--json"}), options);
    EXPECT_EQ(result.exit_code, 130) << result.err;
    ASSERT_TRUE(json::accept(result.out)) << result.out;
    EXPECT_EQ(json::parse(result.out)["error"]["code"], "interrupted");
  }
}

TEST(InterruptTest, StopsInPrefillAndSaysHowFarItCame) {
  ChildOptions options;
  options.input = LongText(3000);
  options.interrupt_at = "prompt  ";  // the bar after the first chunk
  const ChildResult result = RunLkv(WithModel({"run", "--json"}), options);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  const json document = json::parse(result.out);
  EXPECT_EQ(document["stop_reason"], "cancelled");
  EXPECT_EQ(document["generated_tokens"], 0);
  EXPECT_LT(document["prefill"]["tokens"], document["prompt_tokens"]);
}

TEST(ChatTest, TurnsFromAPipeAreAppendedToOneCache) {
  ChildOptions options;
  options.input = "My name is Ada.\n\nWhat is my name?\n/nonsense\n/stats\n";
  const ChildResult result = RunLkv(WithModel({"chat", "-n", "24"}), options);
  // The chat went on; the exit code tells a script of the mistake.
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_NE(result.out.find("Ada"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("line 4: unknown command '/nonsense'"),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("kv cache"), std::string::npos);
}

TEST(ChatTest, AMessageThatCannotBeAnsweredDoesNotEndTheOthers) {
  ChildOptions options;
  options.input = std::string("a\0b\n", 4) + LongText(6000) + "\n" +
                  std::string((16 << 20) + 1, 'x') + "\nMy name is Ada.\n";
  const ChildResult result = RunLkv(WithModel({"chat", "-n", "24"}), options);
  EXPECT_EQ(result.exit_code, 2);
  for (const char* message : {"lkv: line 1: these words contain a NUL byte; ",
                              "lkv: line 2: these words need ",
                              "lkv: line 3: longer than 16.0 MiB; "}) {
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  }
  EXPECT_NE(result.out.find("Ada"), std::string::npos) << result.out;
}

TEST(ChatTest, WhatNoMessageCouldCureIsSaidBeforeTheFirst) {
  const std::string path = testing::TempDir() + "lkv_chat_broken.gbnf";
  std::ofstream(path) << "root ::= (";
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"chat", "--budget", "10"},
                                             {"chat", "--grammar", path}}) {
    ChildOptions options;
    options.input = "Hello.\nHello again.\n";
    const ChildResult result = RunLkv(WithModel(words), options);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
  }
}

TEST(ChatTest, LinesMayEndAsWindowsWritesThem) {
  ChildOptions options;
  options.input = "/stats\r\n/explain\r\n\r\n/quit\r\nnever read\r\n";
  const ChildResult result = RunLkv(WithModel({"chat"}), options);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "lkv: /stats: nothing was answered yet; ask something\n"
            "lkv: /explain: nothing is cached yet; ask something\n");
}

TEST(ChatTest, AShareThatIsTooSmallIsRaisedWithOneNotice) {
  ChildOptions options;
  options.input = "Hello.\nHello again.\n";
  const ChildResult result =
      RunLkv(WithModel({"chat", "-n", "2", "--budget", "1%"}), options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const size_t at = result.err.find("lkv: budget: 1% is ");
  EXPECT_EQ(at, 0u) << result.err;
  EXPECT_EQ(result.err.find("lkv: budget:", at + 1), std::string::npos);
}

TEST(ChatTest, SaveWritesBothSides) {
  const std::string path = testing::TempDir() + "lkv_chat.txt";
  ChildOptions options;
  options.input =
      "Hello.\n/save " + path + "\n/save /no/such/folder/x\n/quit\n";
  const ChildResult result = RunLkv(WithModel({"chat", "-n", "4"}), options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("/no/such/folder/x: "), std::string::npos);
  std::stringstream saved;
  saved << std::ifstream(path).rdbuf();
  EXPECT_TRUE(saved.str().starts_with("### user\n\nHello.\n\n### assistant\n"))
      << saved.str();
}

}  // namespace
}  // namespace lkv::cli
