// Presets: values for a kind of work. Each is a list of ordinary settings, one
// layer above the defaults. Pure.
#pragma once

#include <span>
#include <string_view>

namespace lkv {

struct PresetValue {
  std::string_view key;
  std::string_view text;
};

struct Preset {
  std::string_view name;
  std::string_view why;  // one line
  std::span<const PresetValue> values;
};

std::span<const Preset> Presets();
// nullptr when there is no such preset ("none" is not one).
const Preset* FindPreset(std::string_view name);

}  // namespace lkv
