// Long generations: whether a sequence that writes far beyond its budget stays
// within it, and whether what it writes stays text.
//
// Each text is continued from its first tokens with the full cache and under
// each policy, drawn with the same seed; the end of the text is never drawn.
// Drawn texts part at the first different token, so they are compared by what
// they are like: how much they repeat themselves, and how likely the model
// itself, with everything kept, finds them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "eval/repetition.h"
#include "eval/tokenized_text.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

struct LongGenerationOptions {
  std::vector<std::string> policies;  // not `repeat`
  std::vector<Budget> budgets;        // shares are of prompt and new tokens
  uint32_t prompt_tokens = 256;       // the first of the text
  uint32_t new_tokens = 2048;         // at least one
  // Without a penalty SmolLM2-135M runs in circles after some hundred tokens,
  // whatever it keeps. Other sampling options: their defaults.
  float temperature = 0.8f;
  float repeat_penalty = 1.1f;
  uint32_t seed = 0;
  CacheOptions cache;  // policy and budget are replaced
};

// A continuation under one policy at one budget.
struct LongGenerationRow {
  std::string policy;
  Budget budget;
  std::vector<int32_t> tokens;
  uint64_t resident_bytes_max = 0;
  // Of the tokens written since the first eviction: the most resident bytes
  // during their second half over that during their first; 1: memory is flat.
  // None when nothing was evicted.
  std::optional<double> growth;
  uint64_t evicted_tokens = 0;
  Repetition repetition;
  // Of the new tokens, by the model with the full cache.
  double perplexity = 0;
  // New tokens before the first that the full cache's text has otherwise.
  uint32_t common_tokens = 0;
};

struct LongGeneration {
  std::string text_name;
  LongGenerationRow full;               // its budget is full
  std::vector<LongGenerationRow> rows;  // by budget, then policy
};

// kInvalidArgument: an unknown policy, or `repeat`. For those who want to know
// before a model is loaded.
Status CheckPolicies(const LongGenerationOptions& options);

// One entry for each text. `progress` (may be empty) is told tokens done and
// all: each row's are written once and read once. kInvalidArgument: an unknown
// policy, a text shorter than the prompt, more tokens than the model was
// trained for, a budget below what the policies need.
Result<std::vector<LongGeneration>> MeasureLongGeneration(
    Engine& engine, std::span<const TokenizedText> texts,
    const LongGenerationOptions& options,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled);

}  // namespace lkv
