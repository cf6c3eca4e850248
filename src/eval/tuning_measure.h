// Measuring candidates of `lkv tune` with a model, in closed loop
// (eval/closed_loop.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "eval/closed_loop.h"
#include "eval/tuning.h"
#include "eval/tuning_space.h"

namespace lkv {

struct TuningSetup {
  CacheOptions base;  // policy lookahead; says how contexts are read
  TuningSpace space;
  uint32_t context_tokens = 1024;
  uint32_t forced_tokens = 128;

  uint32_t window_tokens() const { return context_tokens + forced_tokens; }
};

// Cuts each text into windows that do not overlap, so that intervals over them
// mean something: at most per_text of each, drawn by seed. Texts take turns, so
// that the first windows are of as many texts as there are. kInvalidArgument: a
// text that is shorter than a window.
Result<std::vector<TokenizedText>> CutIntoWindows(
    std::span<const TokenizedText> texts, const TuningSetup& setup,
    uint32_t per_text, uint64_t seed);

// What Tune asks for its figures. Needs an engine with high activations;
// engine, windows and setup must outlive what is returned. `progress` and
// `cancelled` as in RunClosedLoop, for the runs of one call.
MeasureOnWindow MeasureWithModel(
    Engine& engine, const std::vector<TokenizedText>& windows,
    const TuningSetup& setup,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled);

}  // namespace lkv
