#include "eval/tuning_space.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/types.h"
#include "options/option_table.h"

namespace lkv {
namespace {

// Keys that decide what the window is.
constexpr std::string_view kWindowKeys[] = {"window_strategy", "base_window",
                                            "max_window", "min_window"};

void Set(std::string_view name, std::string_view text, CacheOptions* options) {
  const OptionKey* key = FindOption(name);
  CHECK(key != nullptr && SetOption(*key, text, options).ok());
}

// In the order of DescribeChoices. Choice 0 of an axis is the default; the
// others are values that the design sketch names (4 to 12 steps) or that
// docs/experiments.md compares.
TuningSpace AllAxes() {
  return {
      {{"unit repack", {}}, {"unit page", {{"unit", "page"}}}},
      {{"predictor auto", {}}, {"predictor ema", {{"predictor", "ema"}}}},
      {{"score output_error", {}},
       {"score value_norm", {{"score", "value_norm"}}}},
      {{"prediction_steps 4", {}},
       {"prediction_steps 2", {{"prediction_steps", "2"}}},
       {"prediction_steps 8", {{"prediction_steps", "8"}}},
       {"prediction_steps 12", {{"prediction_steps", "12"}}}},
      // A dynamic window reaches from half of its base to one and a half.
      // A threshold has something to do where the window may be smaller than
      // the budget.
      {{"window = budget", {}},
       {"dynamic window, base 2/3 of the budget",
        {{"window_strategy", "dynamic"}},
        2.0 / 3},
       {"dynamic window, base 1/2 of the budget",
        {{"window_strategy", "dynamic"}},
        0.5},
       {"hybrid window, base 2/3 of the budget",
        {{"window_strategy", "hybrid"}},
        2.0 / 3},
       {"dynamic window, base 2/3 of the budget, score_threshold 25",
        {{"window_strategy", "dynamic"},
         {"eviction_policy", "score_threshold"},
         {"score_threshold", "25"}},
        2.0 / 3},
       {"dynamic window, base 2/3 of the budget, score_threshold 50",
        {{"window_strategy", "dynamic"},
         {"eviction_policy", "score_threshold"},
         {"score_threshold", "50"}},
        2.0 / 3}},
  };
}

// Paths may hold what YAML reads as something else.
std::string YamlText(const std::string& text) {
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '%';
  });
  if (is_plain) return text;
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

TuningSpace MakeTuningSpace(
    const std::function<bool(std::string_view)>& is_set) {
  const auto changes_what_is_set = [&](const TuningChoice& choice) {
    return std::any_of(
               choice.values.begin(), choice.values.end(),
               [&](const auto& value) { return is_set(value.first); }) ||
           (choice.base_window_of_budget > 0 &&
            std::any_of(std::begin(kWindowKeys), std::end(kWindowKeys),
                        is_set));
  };
  TuningSpace space;
  for (TuningAxis& axis : AllAxes()) {
    std::erase_if(axis, changes_what_is_set);
    if (axis.size() > 1) space.push_back(std::move(axis));
  }
  return space;
}

CacheOptions OptionsOf(const TuningSpace& space, const CacheOptions& base,
                       const TuningCandidate& candidate,
                       uint32_t window_tokens) {
  CHECK(candidate.choices.size() == space.size());
  CacheOptions options = base;
  options.budget = {.kind = Budget::Kind::kShare, .share = candidate.share};
  for (size_t axis = 0; axis < space.size(); ++axis) {
    const TuningChoice& choice = space[axis][candidate.choices[axis]];
    for (const auto& [key, text] : choice.values) Set(key, text, &options);
    if (choice.base_window_of_budget > 0) {
      // Whole pages, one at least.
      const double pages = choice.base_window_of_budget * candidate.share *
                           window_tokens / kPageTokens;
      options.base_window_tokens =
          std::max(1u, static_cast<uint32_t>(std::lround(pages))) * kPageTokens;
    }
  }
  return options;
}

std::string DescribeChoices(const TuningSpace& space,
                            const std::vector<uint32_t>& choices) {
  std::string text;
  for (size_t axis = 0; axis < space.size(); ++axis) {
    if (choices[axis] == 0) continue;
    text += (text.empty() ? "" : ", ") + space[axis][choices[axis]].label;
  }
  return text.empty() ? "defaults" : text;
}

std::string ConfigBlock(const CacheOptions& options,
                        const std::vector<std::string>& notes) {
  std::string block;
  for (const std::string& note : notes) block += "# " + note + "\n";
  block += "lookahead_kv:\n";
  const CacheOptions defaults;
  for (const OptionKey& key : OptionTable()) {
    const std::string text = FormatOption(key, options);
    if (text == FormatOption(key, defaults)) continue;
    block += "  " + std::string(key.name) + ": " + YamlText(text) + "\n";
  }
  return block;
}

}  // namespace lkv
