#include "options/configuration.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/printable_text.h"
#include "options/config_file.h"
#include "options/presets.h"
#include "options/suggestion.h"

namespace lkv {
namespace {

constexpr std::string_view kPrefix = "LKV_";
// Read elsewhere: by the command line, the choice of kernels, our own tests.
constexpr std::array<std::string_view, 4> kOtherVariables = {
    "MODEL", "KERNELS", "TEST_MODEL", "LONG_TESTS"};

Status UnknownKey(const std::string& origin, std::string_view key) {
  const auto names = OptionNames();
  const std::string_view nearest = NearestWord(key, names);
  const std::string remedy =
      nearest.empty() ? "lkv config explain lists all keys"
                      : "did you mean '" + std::string(nearest) + "'?";
  return InvalidArgument(origin + ": unknown key " + Quoted(key) + "; " +
                         remedy);
}

Result<std::vector<Setting>> SettingsOfFile(const std::string& path) {
  auto file = ReadConfigFile(path);
  if (!file.ok()) return file.status();
  std::vector<Setting> settings;
  for (FileSetting& setting : *file) {
    settings.push_back({std::move(setting.key), std::move(setting.text),
                        path + ":" + std::to_string(setting.line)});
  }
  return settings;
}

struct EnvironmentSettings {
  std::vector<Setting> settings;
  std::vector<std::string> warnings;
};

Result<EnvironmentSettings> SettingsOfEnvironment(
    const std::vector<std::pair<std::string, std::string>>& variables) {
  // The shared prefix does not make two names alike, so it stays out.
  std::vector<std::string> keys;
  for (const OptionKey& key : OptionTable()) {
    keys.push_back(EnvironmentName(key).substr(kPrefix.size()));
  }
  std::vector<std::string_view> known(keys.begin(), keys.end());
  known.insert(known.end(), kOtherVariables.begin(), kOtherVariables.end());

  EnvironmentSettings found;
  for (const auto& [name, text] : variables) {
    const std::string_view tail = std::string_view(name).substr(kPrefix.size());
    const auto at = std::find(known.begin(), known.end(), tail);
    if (at != known.end()) {
      const auto index = static_cast<size_t>(at - known.begin());
      if (index >= keys.size()) continue;
      found.settings.push_back(
          {std::string(OptionTable()[index].name), text, name});
      continue;
    }
    const std::string_view nearest = NearestWord(tail, known);
    const std::string what = "environment: unknown variable " + Quoted(name);
    if (!nearest.empty()) {
      return InvalidArgument(what + "; did you mean 'LKV_" +
                             std::string(nearest) + "'?");
    }
    found.warnings.push_back(
        what + " is ignored; unset it, or see lkv config explain for the keys");
  }
  return found;
}

}  // namespace

Result<Configuration> Configuration::Load(const ConfigurationLayers& layers) {
  std::vector<Setting> file;
  if (layers.file) {
    auto settings = SettingsOfFile(*layers.file);
    if (!settings.ok()) return settings.status();
    file = std::move(*settings);
  }
  auto environment = SettingsOfEnvironment(layers.environment);
  if (!environment.ok()) return environment.status();

  Configuration configuration;
  configuration.warnings_ = std::move(environment->warnings);
  for (const OptionKey& key : OptionTable()) {
    configuration.values_.push_back(
        {&key, FormatOption(key, configuration.cache_), "default"});
  }
  // Lowest layer first. The preset lies below all of them but is chosen by
  // them, so it is applied last, to the keys that are still at their default.
  using Layer = std::span<const Setting>;
  for (Layer layer : {Layer(file), Layer(environment->settings),
                      Layer(layers.command_line)}) {
    if (Status s = configuration.Apply(layer); !s.ok()) return s;
  }
  if (Status s = configuration.ApplyPreset(); !s.ok()) return s;
  configuration.EnableTiersIfAsked();
  if (Status s = configuration.CheckTogether(); !s.ok()) return s;
  if (!configuration.cache_.enabled) {
    configuration.cache_.policy = PolicyName::kFull;
    configuration.cache_.budget = Budget();
    const std::string why =
        "enabled: false, " + configuration.Find("enabled").origin;
    for (const char* name : {"policy", "budget"}) {
      EffectiveValue& value = configuration.Find(name);
      value.text = FormatOption(*value.key, configuration.cache_);
      value.origin = why;
    }
  }
  return configuration;
}

Status Configuration::Apply(std::span<const Setting> layer) {
  for (const Setting& setting : layer) {
    const OptionKey* key = FindOption(setting.key);
    if (key == nullptr) return UnknownKey(setting.origin, setting.key);
    if (Status s = SetOption(*key, setting.text, &cache_); !s.ok()) {
      return InvalidArgument(setting.origin + ": " + std::string(s.message()));
    }
    EffectiveValue& value = Find(setting.key);
    // A key without a field keeps its text, all others their canonical form.
    value.text = std::holds_alternative<std::monostate>(key->field)
                     ? setting.text
                     : FormatOption(*key, cache_);
    value.origin = setting.origin;
  }
  return {};
}

Status Configuration::ApplyPreset() {
  const EffectiveValue& chosen = Find("preset");
  const Preset* preset = FindPreset(chosen.text);
  if (preset == nullptr) return {};  // "none"
  std::vector<Setting> layer;
  for (const PresetValue& value : preset->values) {
    if (Find(value.key).origin != "default") continue;
    layer.push_back({std::string(value.key), std::string(value.text),
                     "preset " + std::string(preset->name)});
  }
  return Apply(layer);
}

void Configuration::EnableTiersIfAsked() {
  EffectiveValue& enabled = Find("tiers.enabled");
  if (enabled.origin != "default") return;
  for (const EffectiveValue& value : values_) {
    if (!value.key->name.starts_with("tiers.") || value.origin == "default") {
      continue;
    }
    cache_.tiers = true;
    enabled.text = FormatOption(*enabled.key, cache_);
    enabled.origin = std::string(value.key->name) + ", " + value.origin;
    return;
  }
}

// Only "auto" and open windows are settled later, for a model and a request.
Status Configuration::CheckTogether() const {
  const auto check = [&](std::string_view low, std::string_view high,
                         const std::optional<uint32_t>& low_tokens,
                         const std::optional<uint32_t>& high_tokens) -> Status {
    if (!low_tokens || !high_tokens || *low_tokens <= *high_tokens) return {};
    const EffectiveValue& a = Find(low);
    const EffectiveValue& b = Find(high);
    return InvalidArgument(a.origin + ": " + std::string(low) + " " + a.text +
                           " is above " + std::string(high) + " " + b.text +
                           " (" + b.origin + "); lower one or raise the other");
  };
  const auto& base = cache_.base_window_tokens;
  const auto& max = cache_.max_window_tokens;
  const auto& min = cache_.min_window_tokens;
  if (Status s = check("base_window", "max_window", base, max); !s.ok()) {
    return s;
  }
  if (Status s = check("min_window", "base_window", min, base); !s.ok()) {
    return s;
  }
  return check("min_window", "max_window", min, max);
}

bool Configuration::IsSet(std::string_view name) const {
  return Find(name).origin != "default";
}

EffectiveValue& Configuration::Find(std::string_view name) {
  const auto at =
      std::find_if(values_.begin(), values_.end(),
                   [&](const auto& v) { return v.key->name == name; });
  CHECK(at != values_.end());
  return *at;
}

const EffectiveValue& Configuration::Find(std::string_view name) const {
  return const_cast<Configuration*>(this)->Find(name);
}

std::vector<std::pair<std::string, std::string>> ReadEnvironment() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) {
      continue;
    }
    variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace lkv
