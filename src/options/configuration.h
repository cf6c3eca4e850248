// Configuration: the effective value of every key and where it came from.
//
// Layers, the first that gives a key wins: command line, environment, file,
// preset, default. Thread-compatible; immutable after Load.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"
#include "options/option_table.h"

namespace lkv {

// One key as somebody set it.
struct Setting {
  std::string key;
  std::string text;
  std::string origin;  // "--budget", "LKV_BUDGET", "my.yaml:4", "preset chat"
};

struct ConfigurationLayers {
  std::vector<Setting> command_line;  // later entries win
  // Variables named LKV_..., with their values. One that looks like a known one
  // misspelt is refused; any other that is not known gives a warning.
  std::vector<std::pair<std::string, std::string>> environment;
  std::optional<std::string> file;  // path
};

struct EffectiveValue {
  const OptionKey* key = nullptr;
  std::string text;
  // As in Setting, or "default"; "enabled: false, <origin>" for what that key
  // overrules.
  std::string origin;
};

class Configuration {
 public:
  // kInvalidArgument: unknown key, bad value, or values that contradict each
  // other; the message begins with the origin. kNotFound: no such file.
  static Result<Configuration> Load(const ConfigurationLayers& layers);

  // What the cache works with: `enabled: false` has become the full cache.
  const CacheOptions& cache() const { return cache_; }
  // Whether anybody set the key: it does not have its default.
  bool IsSet(std::string_view name) const;
  // All keys, in the order of OptionTable().
  const std::vector<EffectiveValue>& values() const { return values_; }
  // What was ignored, a line each.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Configuration() = default;
  Status Apply(std::span<const Setting> layer);
  Status ApplyPreset();
  // A key of the tiers means that they are wanted.
  void EnableTiersIfAsked();
  Status CheckTogether() const;
  EffectiveValue& Find(std::string_view name);
  const EffectiveValue& Find(std::string_view name) const;

  CacheOptions cache_;
  std::vector<EffectiveValue> values_;
  std::vector<std::string> warnings_;
};

// The variables of this process whose names begin with LKV_.
std::vector<std::pair<std::string, std::string>> ReadEnvironment();

}  // namespace lkv
