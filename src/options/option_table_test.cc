#include "options/option_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string>

#include "options/presets.h"

namespace lkv {
namespace {

TEST(OptionTableTest, NamesAreUniqueAndEveryKeyIsExplained) {
  std::set<std::string_view> names;
  for (const OptionKey& key : OptionTable()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.doc.empty()) << key.name;
    EXPECT_FALSE(AllowedValues(key).empty()) << key.name;
    EXPECT_EQ(FindOption(key.name), &key);
  }
  EXPECT_EQ(FindOption("tiers"), nullptr)
      << "a key is unknown until the part that it steers exists";
}

TEST(OptionTableTest, FieldsThatNoTextWouldSetAreRefusedByName) {
  EXPECT_TRUE(CheckOptions(CacheOptions()).ok());
  const auto refused = [](auto change, std::string_view name) {
    CacheOptions options;
    change(options);
    const Status status = CheckOptions(options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_TRUE(status.message().starts_with(name)) << status.message();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused([](CacheOptions& o) { o.prediction_steps = 0; }, "prediction_steps");
  refused([&](CacheOptions& o) { o.change_smoothing = nan; },
          "change_smoothing");
  refused([](CacheOptions& o) { o.score_threshold_percentile = 1e9; },
          "score_threshold");
  refused([](CacheOptions& o) { o.policy = static_cast<PolicyName>(99); },
          "policy");
  refused([](CacheOptions& o) { o.base_window_tokens = 0; }, "base_window");
}

TEST(OptionTableTest, EveryChoiceReadsBackAsItself) {
  for (const OptionKey& key : OptionTable()) {
    if (!std::holds_alternative<ChoiceField>(key.field)) continue;
    for (std::string_view choice : key.choices) {
      CacheOptions options;
      ASSERT_TRUE(SetOption(key, choice, &options).ok()) << choice;
      EXPECT_EQ(FormatOption(key, options), choice);
    }
  }
}

TEST(OptionTableTest, ChoicesMeanTheEnumeratorsOfTheirName) {
  CacheOptions options;
  const auto set = [&](std::string_view key, std::string_view text) {
    ASSERT_TRUE(SetOption(*FindOption(key), text, &options).ok()) << text;
  };
  set("policy", "snapkv");
  EXPECT_EQ(options.policy, PolicyName::kSnapKv);
  set("policy", "random");
  EXPECT_EQ(options.policy, PolicyName::kRandom);
  set("policy", "h2o");
  EXPECT_EQ(options.policy, PolicyName::kH2o);
  set("window_strategy", "hybrid");
  EXPECT_EQ(options.window_strategy, WindowStrategy::kHybrid);
  set("window_law", "source");
  EXPECT_EQ(options.window_law, WindowLaw::kSource);
  set("eviction_policy", "score_threshold");
  EXPECT_EQ(options.eviction_rule, EvictionRule::kScoreThreshold);
  set("score", "value_norm");
  EXPECT_EQ(options.score, ScoreName::kValueNorm);
  set("change_metric", "kl");
  EXPECT_EQ(options.change_metric, ChangeMetric::kKullbackLeibler);
  set("kv_type", "bf16");
  EXPECT_EQ(options.kv_type, KvTypeName::kBF16);
  set("sessions.durability", "always");
  EXPECT_EQ(options.sessions_durability, SessionDurability::kAlways);
  set("lane_spread", "mass");
  EXPECT_EQ(options.lane_spread, LaneSpreadMode::kMass);
}

TEST(OptionTableTest, NumbersAreTakenOnlyInsideTheirRange) {
  const OptionKey& steps = *FindOption("prediction_steps");
  CacheOptions options;
  for (const char* good : {"1", "4", "64"}) {
    EXPECT_TRUE(SetOption(steps, good, &options).ok()) << good;
  }
  for (const char* bad : {"0", "65", "-1", "4.5", "four", "", " 4", "4 ", "0x4",
                          "99999999999999999999999999", "1e3", "auto"}) {
    EXPECT_FALSE(SetOption(steps, bad, &options).ok()) << bad;
  }
  EXPECT_EQ(options.prediction_steps, 64u);
  const OptionKey& decay = *FindOption("temporal_decay");
  for (const char* bad : {"nan", "inf", "-0.1", "1.01", "1e400", "0.9x"}) {
    EXPECT_FALSE(SetOption(decay, bad, &options).ok()) << bad;
  }
}

TEST(OptionTableTest, PathsAndBytesAreTakenAsTheyAreWritten) {
  CacheOptions options;
  const OptionKey& path = *FindOption("sessions.path");
  ASSERT_TRUE(SetOption(path, "/a/b c", &options).ok());
  EXPECT_EQ(options.sessions_path, "/a/b c");
  EXPECT_FALSE(SetOption(path, "", &options).ok());
  EXPECT_FALSE(SetOption(path, std::string_view("a\0b", 3), &options).ok());
  EXPECT_EQ(AllowedValues(path), "auto | a path");
  const OptionKey& bytes = *FindOption("sessions.bytes");
  ASSERT_TRUE(SetOption(bytes, "512MiB", &options).ok());
  EXPECT_EQ(options.sessions_bytes, uint64_t{512} << 20);
  EXPECT_EQ(FormatOption(bytes, options), "512MiB");
  for (const char* bad : {"512", "25%", "full", "1KiB", "2000TiB", ""}) {
    EXPECT_FALSE(SetOption(bytes, bad, &options).ok()) << bad;
  }
  EXPECT_EQ(AllowedValues(bytes), "1MiB .. 1024TiB");
}

TEST(OptionTableTest, AutoIsTakenWhereOfferedAndANumberEndsIt) {
  CacheOptions options;
  const OptionKey& base = *FindOption("base_window");
  ASSERT_TRUE(SetOption(base, "auto", &options).ok());
  EXPECT_TRUE(options.base_window_auto);
  EXPECT_EQ(FormatOption(base, options), "auto");
  ASSERT_TRUE(SetOption(base, "2048", &options).ok());
  EXPECT_FALSE(options.base_window_auto);
  EXPECT_EQ(options.base_window_tokens, 2048u);
  EXPECT_FALSE(SetOption(*FindOption("min_window"), "auto", &options).ok());
}

TEST(OptionTableTest, ABadChoiceIsAnsweredWithTheNearestAndAll) {
  CacheOptions options;
  const Status status =
      SetOption(*FindOption("window_strategy"), "dynamc", &options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "window_strategy does not take 'dynamc'; did you mean 'dynamic'? "
            "allowed: static | dynamic | hybrid");
}

TEST(OptionTableTest, EnvironmentNamesFollowTheKeys) {
  EXPECT_EQ(EnvironmentName(*FindOption("base_window")), "LKV_BASE_WINDOW");
}

TEST(OptionTableTest, TheDocumentHoldsExactlyThisTable) {
  std::ifstream file(LKV_SOURCE_DIR "/docs/configuration.md");
  std::stringstream document;
  document << file.rdbuf();
  EXPECT_NE(document.str().find(OptionTableMarkdown()), std::string::npos)
      << "paste the output of `lkv config explain --markdown` into "
         "docs/configuration.md:\n"
      << OptionTableMarkdown();
}

TEST(PresetsTest, EveryPresetSetsKnownKeysToAllowedValues) {
  EXPECT_EQ(Presets().size() + 1, FindOption("preset")->choices.size());
  for (const Preset& preset : Presets()) {
    CacheOptions options;
    EXPECT_TRUE(SetOption(*FindOption("preset"), preset.name, &options).ok());
    for (const PresetValue& value : preset.values) {
      const OptionKey* key = FindOption(value.key);
      ASSERT_NE(key, nullptr) << value.key;
      EXPECT_TRUE(SetOption(*key, value.text, &options).ok()) << value.key;
    }
  }
}

TEST(PresetsTest, ChatAndCodeLookAsFarAheadAsTheSourceSays) {
  const auto steps = [](std::string_view preset) {
    CacheOptions options;
    for (const PresetValue& value : FindPreset(preset)->values) {
      EXPECT_TRUE(SetOption(*FindOption(value.key), value.text, &options).ok());
    }
    return options.prediction_steps;
  };
  EXPECT_GE(steps("chat"), 4u);
  EXPECT_LE(steps("chat"), 6u);
  EXPECT_GE(steps("code"), 8u);
  EXPECT_LE(steps("code"), 12u);
}

}  // namespace
}  // namespace lkv
