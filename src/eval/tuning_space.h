// What `lkv tune` may change: axes of choices, each a few keys of the
// configuration. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/tuning.h"
#include "lookaheadkv/options.h"

namespace lkv {

struct TuningChoice {
  std::string label;  // "prediction_steps 8"
  std::vector<std::pair<std::string_view, std::string_view>> values;
  // Above 0: base_window is this part of the budget's tokens.
  double base_window_of_budget = 0;
};

// Choice 0 changes nothing: the key keeps its default.
using TuningAxis = std::vector<TuningChoice>;
using TuningSpace = std::vector<TuningAxis>;

// The axes without the choices that change a key which somebody has set;
// `is_set` says so of a key.
TuningSpace MakeTuningSpace(
    const std::function<bool(std::string_view)>& is_set);

// The options of a candidate: those of `base`, its choices, its budget as a
// share. A base_window is in tokens of a text of window_tokens.
CacheOptions OptionsOf(const TuningSpace& space, const CacheOptions& base,
                       const TuningCandidate& candidate,
                       uint32_t window_tokens);

// "defaults", or what differs from them: "unit page, prediction_steps 8".
std::string DescribeChoices(const TuningSpace& space,
                            const std::vector<uint32_t>& choices);

// The block `lookahead_kv:` with all keys that have not their default, as
// `--config` reads it; `notes` become comments, a line each.
std::string ConfigBlock(const CacheOptions& options,
                        const std::vector<std::string>& notes);

}  // namespace lkv
