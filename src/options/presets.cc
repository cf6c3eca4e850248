#include "options/presets.h"

#include <algorithm>
#include <array>

namespace lkv {
namespace {

constexpr std::array kChat = std::to_array<PresetValue>({
    {"prediction_steps", "5"},
    {"warmup_tokens", "512"},
    {"recent_tokens", "128"},
    {"pin_system", "true"},
});

constexpr std::array kCode = std::to_array<PresetValue>({
    {"prediction_steps", "10"},
    {"warmup_tokens", "512"},
    {"recent_tokens", "256"},
});

constexpr std::array kLongDocument = std::to_array<PresetValue>({
    {"budget", "25%"},
    {"window_strategy", "static"},
    {"prediction_steps", "12"},
});

constexpr std::array kAgent = std::to_array<PresetValue>({
    {"budget", "50%"},
    {"prediction_steps", "8"},
    {"recent_tokens", "256"},
    {"pin_system", "true"},
    {"dwell_steps", "64"},
});

constexpr std::array kPresets = std::to_array<Preset>({
    {"chat",
     "short turns that refer to the last few; nothing leaves before the "
     "conversation has a shape",
     kChat},
    {"code",
     "definitions are used again far away, and the lines being written lean "
     "on those just above",
     kCode},
    {"long_document",
     "one long text, then questions: a quarter of the memory, a far horizon, "
     "no window that shrinks while reading",
     kLongDocument},
    {"agent",
     "tool results come in bursts and instructions must stay: half the "
     "memory, a window that moves slowly",
     kAgent},
});

}  // namespace

std::span<const Preset> Presets() { return kPresets; }

const Preset* FindPreset(std::string_view name) {
  const auto at = std::find_if(kPresets.begin(), kPresets.end(),
                               [&](const Preset& p) { return p.name == name; });
  return at == kPresets.end() ? nullptr : &*at;
}

}  // namespace lkv
