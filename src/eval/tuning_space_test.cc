#include "eval/tuning_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

#include "options/configuration.h"
#include "options/option_table.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

constexpr uint32_t kWindowTokens = 2048;

TuningSpace WholeSpace() {
  return MakeTuningSpace([](std::string_view) { return false; });
}

// Each choice of each axis alone, and the default.
std::vector<std::vector<uint32_t>> SingleChoices(const TuningSpace& space) {
  const std::vector<uint32_t> defaults(space.size(), 0);
  std::vector<std::vector<uint32_t>> all = {defaults};
  for (size_t axis = 0; axis < space.size(); ++axis) {
    for (uint32_t choice = 1; choice < space[axis].size(); ++choice) {
      all.push_back(defaults);
      all.back()[axis] = choice;
    }
  }
  return all;
}

TEST(TuningSpaceTest, TheFirstChoicesAreTheDefaults) {
  const TuningSpace space = WholeSpace();
  CacheOptions expected;
  expected.budget = {.kind = Budget::Kind::kShare, .share = 0.25};
  const CacheOptions options = OptionsOf(
      space, {}, {std::vector<uint32_t>(space.size(), 0), 0.25}, kWindowTokens);
  for (const OptionKey& key : OptionTable()) {
    EXPECT_EQ(FormatOption(key, options), FormatOption(key, expected));
  }
  EXPECT_EQ(DescribeChoices(space, std::vector<uint32_t>(space.size(), 0)),
            "defaults");
}

TEST(TuningSpaceTest, HorizonWindowThresholdAndUnitAreSearched) {
  std::set<std::string> changed;
  const TuningSpace space = WholeSpace();
  for (const auto& choices : SingleChoices(space)) {
    const CacheOptions options =
        OptionsOf(space, {}, {choices, 1}, kWindowTokens);
    for (const OptionKey& key : OptionTable()) {
      if (FormatOption(key, options) != FormatOption(key, CacheOptions())) {
        changed.insert(std::string(key.name));
      }
    }
  }
  for (const char* key :
       {"prediction_steps", "base_window", "window_strategy", "score_threshold",
        "eviction_policy", "unit", "score", "predictor"}) {
    EXPECT_TRUE(changed.contains(key)) << key;
  }
}

TEST(TuningSpaceTest, NoTwoChoicesOfAnAxisAreTheSame) {
  const TuningSpace space = WholeSpace();
  std::set<std::string> blocks;
  for (const auto& choices : SingleChoices(space)) {
    blocks.insert(
        ConfigBlock(OptionsOf(space, {}, {choices, 0.5}, kWindowTokens), {}));
  }
  EXPECT_EQ(blocks.size(), SingleChoices(space).size());
}

TEST(TuningSpaceTest, AKeyThatSomebodySetIsNotSearched) {
  for (const OptionKey& key : OptionTable()) {
    const TuningSpace space = MakeTuningSpace(
        [&](std::string_view name) { return name == key.name; });
    for (const auto& choices : SingleChoices(space)) {
      const CacheOptions options =
          OptionsOf(space, {}, {choices, 1}, kWindowTokens);
      if (key.name == "budget") continue;  // what is searched along
      EXPECT_EQ(FormatOption(key, options), FormatOption(key, CacheOptions()))
          << key.name;
      if (key.name == "min_window" || key.name == "max_window") {
        EXPECT_FALSE(options.base_window_tokens.has_value());
      }
    }
  }
}

TEST(TuningSpaceTest, OtherChoicesOfAnAxisStay) {
  const auto size_with = [](std::string_view set) {
    return SingleChoices(MakeTuningSpace(
                             [&](std::string_view key) { return key == set; }))
        .size();
  };
  const size_t n_all = SingleChoices(WholeSpace()).size();
  EXPECT_EQ(size_with("recent_tokens"), n_all);
  EXPECT_EQ(size_with("unit"), n_all - 1);
  EXPECT_EQ(size_with("eviction_policy"), n_all - 2);
  EXPECT_EQ(size_with("base_window"), n_all - 5);
}

TEST(TuningSpaceTest, ABaseWindowIsAPartOfTheBudgetInWholePages) {
  const TuningSpace space = WholeSpace();
  for (const auto& choices : SingleChoices(space)) {
    const CacheOptions options =
        OptionsOf(space, {}, {choices, 0.3}, kWindowTokens);
    if (!options.base_window_tokens) continue;
    EXPECT_EQ(*options.base_window_tokens % 16, 0u);
    EXPECT_LT(*options.base_window_tokens, 0.3 * kWindowTokens);
    EXPECT_GT(*options.base_window_tokens, 0.3 * kWindowTokens / 3);
  }
}

TEST(ConfigBlockTest, TheReaderOfConfigurationsUnderstandsEveryChoice) {
  const TempFolder folder;
  const TuningSpace space = WholeSpace();
  CacheOptions base;
  base.recent_tokens = 64;
  for (const auto& choices : SingleChoices(space)) {
    const CacheOptions options =
        OptionsOf(space, base, {choices, 0.375}, kWindowTokens);
    const std::string path = folder.File("tuned.yaml");
    std::ofstream(path) << ConfigBlock(options, {"a note: with a colon"});
    ConfigurationLayers layers;
    layers.file = path;
    const auto read = Configuration::Load(layers);
    ASSERT_TRUE(read.ok()) << read.status().message();
    for (const OptionKey& key : OptionTable()) {
      EXPECT_EQ(FormatOption(key, read->cache()), FormatOption(key, options))
          << key.name;
    }
  }
}

TEST(ConfigBlockTest, APathComesBackAsItWas) {
  const TempFolder folder;
  CacheOptions options;
  options.predictor = "my \"best\": #1\\x.gguf";
  const std::string path = folder.File("tuned.yaml");
  std::ofstream(path) << ConfigBlock(options, {});
  ConfigurationLayers layers;
  layers.file = path;
  const auto read = Configuration::Load(layers);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->cache().predictor, options.predictor);
}

}  // namespace
}  // namespace lkv
