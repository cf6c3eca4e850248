#include "options/configuration.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace lkv {
namespace {

// A file that is gone after the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& contents) {
    path_ = testing::TempDir() + "lkv_configuration_XXXXXX";
    const int fd = mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    close(fd);
    std::ofstream(path_) << contents;
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const EffectiveValue& ValueOf(const Configuration& configuration,
                              std::string_view key) {
  for (const EffectiveValue& value : configuration.values()) {
    if (value.key->name == key) return value;
  }
  ADD_FAILURE() << "no value for " << key;
  return configuration.values().front();
}

std::string ErrorOf(const ConfigurationLayers& layers) {
  const auto configuration = Configuration::Load(layers);
  if (configuration.ok()) return "accepted";
  return std::string(configuration.status().message());
}

// As it stands in the source document.
constexpr char kSourceBlock[] = R"(lookahead_kv:
  enabled: true
  window_strategy: "dynamic"           # static | dynamic | hybrid
  base_window: 2048                    # tokens, or auto = max(1024, 0.25 * max_seq_len)
  max_window: 8192                     # tokens, or auto = min(half the device memory in tokens, 1.5 * base_window)
  eviction_policy: "score_threshold"   # score_threshold | size_aware
  prediction_steps: 4                  # 4..12 (chat 4-6, code 8-12)
  warmup_tokens: 512
)";

TEST(ConfigurationTest, TheBlockOfTheSourceIsAcceptedAsItStands) {
  const TemporaryFile file(kSourceBlock);
  const auto configuration = Configuration::Load({{}, {}, file.path()});
  ASSERT_TRUE(configuration.ok()) << configuration.status().message();
  const CacheOptions& cache = configuration->cache();
  EXPECT_TRUE(cache.enabled);
  EXPECT_EQ(cache.window_strategy, WindowStrategy::kDynamic);
  EXPECT_EQ(cache.base_window_tokens, 2048u);
  EXPECT_EQ(cache.max_window_tokens, 8192u);
  EXPECT_EQ(cache.eviction_rule, EvictionRule::kScoreThreshold);
  EXPECT_EQ(cache.prediction_steps, 4u);
  EXPECT_EQ(cache.warmup_tokens, 512u);
  EXPECT_EQ(ValueOf(*configuration, "base_window").origin, file.path() + ":4");
}

TEST(ConfigurationTest, WithoutAnyLayerTheDefaultsHold) {
  const auto configuration = Configuration::Load({});
  ASSERT_TRUE(configuration.ok());
  EXPECT_EQ(configuration->values().size(), OptionTable().size());
  for (const EffectiveValue& value : configuration->values()) {
    EXPECT_EQ(value.origin, "default");
    EXPECT_EQ(value.text, FormatOption(*value.key, CacheOptions()));
  }
}

TEST(ConfigurationTest, EachLayerBeatsTheOneBelow) {
  const TemporaryFile file(
      "lookahead_kv: {preset: code, sink_tokens: 1,\n"
      "  recent_tokens: 64, prediction_steps: 7}\n");
  ConfigurationLayers layers;
  layers.file = file.path();
  layers.environment = {{"LKV_SINK_TOKENS", "2"}, {"LKV_RECENT_TOKENS", "65"}};
  layers.command_line = {{"sink_tokens", "3", "--set"}};
  const auto configuration = Configuration::Load(layers);
  ASSERT_TRUE(configuration.ok()) << configuration.status().message();
  const CacheOptions& cache = configuration->cache();
  EXPECT_EQ(cache.sink_tokens, 3u);
  EXPECT_EQ(ValueOf(*configuration, "sink_tokens").origin, "--set");
  EXPECT_EQ(cache.recent_tokens, 65u);
  EXPECT_EQ(ValueOf(*configuration, "recent_tokens").origin,
            "LKV_RECENT_TOKENS");
  EXPECT_EQ(cache.prediction_steps, 7u) << "the file beats the preset's 10";
  EXPECT_EQ(ValueOf(*configuration, "prediction_steps").origin,
            file.path() + ":2");
  EXPECT_EQ(cache.warmup_tokens, 512u) << "the preset beats the default";
  EXPECT_EQ(ValueOf(*configuration, "warmup_tokens").origin, "preset code");
  EXPECT_EQ(ValueOf(*configuration, "temporal_decay").origin, "default");
}

TEST(ConfigurationTest, APresetChosenAboveAFileStaysBelowTheFilesKeys) {
  const TemporaryFile file("lookahead_kv: {budget: 2048, preset: chat}\n");
  ConfigurationLayers layers;
  layers.file = file.path();
  layers.command_line = {{"preset", "long_document", "--set"}};
  const auto configuration = Configuration::Load(layers);
  ASSERT_TRUE(configuration.ok());
  EXPECT_EQ(configuration->cache().budget.amount, 2048u);
  EXPECT_EQ(configuration->cache().prediction_steps, 12u);
  EXPECT_EQ(ValueOf(*configuration, "preset").text, "long_document");
}

TEST(ConfigurationTest, TheLastOfTwoOnTheCommandLineWins) {
  ConfigurationLayers layers;
  layers.command_line = {{"budget", "25%", "--budget"},
                         {"budget", "full", "--set"}};
  EXPECT_EQ(Configuration::Load(layers)->cache().budget.kind,
            Budget::Kind::kFull);
}

TEST(ConfigurationTest, DisabledMeansTheFullCacheAndShowsIt) {
  ConfigurationLayers layers;
  layers.environment = {{"LKV_ENABLED", "false"}};
  layers.command_line = {{"budget", "25%", "--budget"}};
  const auto configuration = Configuration::Load(layers);
  ASSERT_TRUE(configuration.ok()) << configuration.status().message();
  EXPECT_EQ(configuration->cache().policy, PolicyName::kFull);
  EXPECT_EQ(configuration->cache().budget.kind, Budget::Kind::kFull);
  for (const char* key : {"policy", "budget"}) {
    EXPECT_EQ(ValueOf(*configuration, key).text, "full");
    EXPECT_EQ(ValueOf(*configuration, key).origin,
              "enabled: false, LKV_ENABLED");
  }
  EXPECT_EQ(ValueOf(*configuration, "enabled").origin, "LKV_ENABLED");
}

TEST(ConfigurationTest, AnUnknownKeyIsAnsweredWithPlaceAndNearestKey) {
  const TemporaryFile file("lookahead_kv:\n  base_windw: 5\n");
  EXPECT_EQ(ErrorOf({{}, {}, file.path()}),
            file.path() +
                ":2: unknown key 'base_windw'; did you mean 'base_window'?");
  const TemporaryFile far("lookahead_kv:\n  colour: 5\n");
  EXPECT_EQ(ErrorOf({{}, {}, far.path()}),
            far.path() +
                ":2: unknown key 'colour'; lkv config explain lists all keys");
}

TEST(ConfigurationTest, AKeyOfTheTiersSwitchesThemOn) {
  const TemporaryFile file("lookahead_kv:\n  tiers:\n    attend: 0.5\n");
  const auto configuration = Configuration::Load({{}, {}, file.path()});
  ASSERT_TRUE(configuration.ok()) << configuration.status().message();
  EXPECT_TRUE(configuration->cache().tiers);
  EXPECT_EQ(configuration->cache().attend_share, 0.5);
  EXPECT_EQ(ValueOf(*configuration, "tiers.enabled").text, "true");
  EXPECT_EQ(ValueOf(*configuration, "tiers.enabled").origin,
            "tiers.attend, " + file.path() + ":3");
}

TEST(ConfigurationTest, WhoeverSwitchesTheTiersOffIsObeyed) {
  ConfigurationLayers layers;
  layers.environment = {{"LKV_TIERS_ATTEND", "0.5"}};
  layers.command_line = {{"tiers.enabled", "false", "--set"}};
  const auto configuration = Configuration::Load(layers);
  ASSERT_TRUE(configuration.ok()) << configuration.status().message();
  EXPECT_FALSE(configuration->cache().tiers);
}

TEST(ConfigurationTest, ABadValueIsAnsweredWithPlaceTextAndAllowedValues) {
  const TemporaryFile file("lookahead_kv:\n\n  prediction_steps: 99\n");
  EXPECT_EQ(ErrorOf({{}, {}, file.path()}),
            file.path() +
                ":3: prediction_steps does not take '99'; allowed: 1 .. 64");
  ConfigurationLayers layers;
  layers.environment = {{"LKV_POLICY", "lur"}};
  EXPECT_EQ(ErrorOf(layers).find(
                "LKV_POLICY: policy does not take 'lur'; did you mean 'lru'?"),
            0u);
  layers = {};
  layers.command_line = {{"budget", "12 apples", "--budget"}};
  EXPECT_EQ(ErrorOf(layers).find("--budget: budget '12 apples'"), 0u);
}

TEST(ConfigurationTest, ABadValueIsRefusedEvenIfAHigherLayerReplacesIt) {
  ConfigurationLayers layers;
  layers.environment = {{"LKV_BUDGET", "much"}};
  layers.command_line = {{"budget", "25%", "--budget"}};
  EXPECT_NE(ErrorOf(layers), "accepted");
}

TEST(ConfigurationTest, AMisspeltVariableIsRefusedAndAnUnknownOneNamed) {
  ConfigurationLayers layers;
  layers.environment = {{"LKV_BASE_WINDOWS", "5"}};
  EXPECT_EQ(ErrorOf(layers),
            "environment: unknown variable 'LKV_BASE_WINDOWS'; did you mean "
            "'LKV_BASE_WINDOW'?");
  layers.environment = {{"LKV_MODEL", "m.gguf"},
                        {"LKV_KERNELS", "avx2"},
                        {"LKV_TEST_MODEL", "m.gguf"}};
  const auto known = Configuration::Load(layers);
  ASSERT_TRUE(known.ok()) << known.status().message();
  EXPECT_TRUE(known->warnings().empty());

  layers.environment = {{"LKV_MODLE", "m.gguf"}};
  EXPECT_NE(ErrorOf(layers).find("did you mean 'LKV_MODEL'?"),
            std::string::npos);
  layers.environment = {{"LKV_TEMPERATURE", "1"}, {"LKV_", ""}};
  const auto unknown = Configuration::Load(layers);
  ASSERT_TRUE(unknown.ok()) << unknown.status().message();
  ASSERT_EQ(unknown->warnings().size(), 2u);
  EXPECT_EQ(unknown->warnings()[0].find(
                "environment: unknown variable 'LKV_TEMPERATURE' is ignored; "),
            0u);
}

TEST(ConfigurationTest, WindowsThatContradictEachOtherAreRefused) {
  const TemporaryFile file("lookahead_kv:\n  base_window: 4096\n");
  ConfigurationLayers layers;
  layers.file = file.path();
  layers.environment = {{"LKV_MAX_WINDOW", "2048"}};
  EXPECT_EQ(ErrorOf(layers),
            file.path() +
                ":2: base_window 4096 is above max_window 2048 "
                "(LKV_MAX_WINDOW); lower one or raise the other");
  layers.environment = {{"LKV_MIN_WINDOW", "5000"}};
  EXPECT_NE(ErrorOf(layers).find("min_window 5000 is above base_window 4096"),
            std::string::npos);
}

TEST(ConfigurationTest, AMissingFileIsNotFound) {
  const auto configuration = Configuration::Load({{}, {}, "/no/such.yaml"});
  ASSERT_FALSE(configuration.ok());
  EXPECT_EQ(configuration.status().code(), StatusCode::kNotFound);
}

TEST(ReadEnvironmentTest, FindsOnlyVariablesWithThePrefix) {
  setenv("LKV_SINK_TOKENS", "a=b", 1);
  setenv("MY_LKV_SINK_TOKENS", "1", 1);
  int n_found = 0;
  for (const auto& [name, value] : ReadEnvironment()) {
    EXPECT_TRUE(name.starts_with("LKV_"));
    if (name != "LKV_SINK_TOKENS") continue;
    ++n_found;
    EXPECT_EQ(value, "a=b");
  }
  EXPECT_EQ(n_found, 1);
  unsetenv("LKV_SINK_TOKENS");
  unsetenv("MY_LKV_SINK_TOKENS");
}

}  // namespace
}  // namespace lkv
