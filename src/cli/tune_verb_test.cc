// `lkv tune` with a real model.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "options/configuration.h"
#include "testing/child_process.h"
#include "testing/test_paths.h"

namespace lkv::cli {
namespace {

using Words = std::vector<std::string>;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Small windows, and only units and steps to choose: a second or two.
ChildResult Tune(const Words& more, const ChildOptions& options = {}) {
  Words words = {"tune",     "-m", TestModelPath(), "--context", "160",
                 "--forced", "4"};
  for (const char* fixed :
       {"recent_tokens=16", "predictor=ema", "score=output_error",
        "window_strategy=dynamic", "eviction_policy=size_aware"}) {
    words.insert(words.end(), {"--set", fixed});
  }
  words.insert(words.end(), more.begin(), more.end());
  return RunLkv(words, options);
}

const char kText[] = LKV_SOURCE_DIR "/LICENSE";

TEST(TuneVerbTest, ItsConfigurationIsOneThatLkvRunTakes) {
  const TempFolder folder;
  const std::string yaml = folder.File("best.yaml");
  const std::string html = folder.File("best.html");
  const ChildResult result =
      Tune({"-f", kText, "--target-memory", "60%", "--windows", "2", "--yaml",
            yaml, "-o", html, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out);
  for (const char* field :
       {"goal", "reached", "end", "tried", "runs", "seconds", "best", "config",
        "challenger", "windows", "frontier", "trials"}) {
    EXPECT_TRUE(document.contains(field)) << field;
  }
  EXPECT_EQ(document["reached"], true);
  EXPECT_EQ(document["end"], "done");
  EXPECT_EQ(document["config"], Contents(yaml));
  // Four budgets of the defaults, one other unit and three other horizons.
  EXPECT_GE(document["tried"], 8);
  ConfigurationLayers layers;
  layers.file = yaml;
  const auto configuration = Configuration::Load(layers);
  ASSERT_TRUE(configuration.ok()) << configuration.status().message();
  EXPECT_EQ(configuration->cache().budget.share, 0.6);
  EXPECT_EQ(configuration->cache().recent_tokens, 16u);
  EXPECT_NE(Contents(html).find("<svg role=\"img\""), std::string::npos);
  const ChildResult run = RunLkv({"run", "-m", TestModelPath(), "--config",
                                  yaml, "-p", "Hello", "-n", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST(TuneVerbTest, TheSameSeedGivesTheSameResult) {
  const auto document = [] {
    const ChildResult result =
        Tune({"-f", kText, "--target-memory", "60%", "--windows", "1", "--seed",
              "3", "--set", "prediction_steps=4", "--json"});
    auto json = nlohmann::json::parse(result.out);
    json.erase("seconds");
    return json;
  };
  const auto first = document();
  EXPECT_EQ(first["windows"].size(), 1u);
  EXPECT_EQ(first, document());
}

TEST(TuneVerbTest, AGoalOutOfReachNamesTheNearestAndFails) {
  const TempFolder folder;
  const std::string yaml = folder.File("best.yaml");
  const std::string html = folder.File("none.html");
  std::ofstream(yaml) << "of an earlier search";
  const ChildResult result =
      Tune({"-f", kText, "--target-agreement", "100%", "--budget", "40%,50%",
            "--windows", "2", "--yaml", yaml, "-o", html});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("100.0 % was not reached; the nearest is "),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.out.find("Nearest: "), std::string::npos);
  EXPECT_EQ(Contents(yaml), "of an earlier search");
  EXPECT_NE(result.err.find("nothing was written to"), std::string::npos);
  EXPECT_NE(result.err.find("best.yaml"), std::string::npos) << result.err;
  EXPECT_TRUE(std::filesystem::exists(html));
}

TEST(TuneVerbTest, WhatDoesNotFitAWindowIsNamed) {
  const TempFolder folder;
  std::ofstream(folder.File("short")) << "A few words.";
  for (const auto& [words, says] : std::vector<std::pair<Words, std::string>>{
           {{"-f", folder.File("short")},
            "short: has 4 tokens, fewer than a window of 165; give a longer "
            "text"},
           {{"-f", kText, "--target-memory", "1GiB"},
            "1GiB holds a whole window of 164 tokens"},
           {{"-f", kText, "--target-memory", "full"}, "holds a whole window"},
           {{"-f", kText, "--target-memory", "164"}, "holds a whole window"}}) {
    const ChildResult result = Tune(words);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  }
}

TEST(TuneVerbTest, CtrlCPrintsWhatWasFound) {
  ChildOptions options;
  // Behind the budgets, which are one step of the bar: full cache, 4 choices.
  options.interrupt_at = "run 2 of 5";
  const ChildResult result = Tune({"-f", kText, "--target-memory", "60%",
                                   "--budget", "50%,75%,90%", "--json"},
                                  options);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  ASSERT_TRUE(nlohmann::json::accept(result.out)) << result.out;
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["end"], "interrupted");
  EXPECT_EQ(document["windows"].size(), 1u);
  EXPECT_EQ(document["frontier"].size(), 4u);
}

TEST(TuneVerbTest, CtrlCBeforeTheFirstFigureSaysThatNothingWasFinished) {
  ChildOptions options;
  options.interrupt_at = "run 1 of 4";
  const ChildResult result =
      Tune({"-f", kText, "--budget", "50%,75%,90%", "--json"}, options);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  ASSERT_TRUE(nlohmann::json::accept(result.out)) << result.out;
  EXPECT_EQ(nlohmann::json::parse(result.out)["error"]["code"], "interrupted");
}

}  // namespace
}  // namespace lkv::cli
