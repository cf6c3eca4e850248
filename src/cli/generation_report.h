// What a generation cost: the JSON of `lkv run --json` and the same as a short
// block of text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/json_document.h"
#include "engine/engine.h"
#include "engine/sessions.h"
#include "eval/step_percentiles.h"
#include "lookaheadkv/hit_rates.h"
#include "lookaheadkv/options.h"

namespace lkv::cli {

// What a run had of sessions, and what it left there.
struct SessionUse {
  std::string name;
  // Without its sequence.
  Sessions::Beginning beginning;
  std::optional<Sessions::Saved> saved;
};

struct GenerationReport {
  const Generation& generation;
  uint32_t prompt_tokens = 0;  // as given; prefill may have been cut short
  CacheOptions cache;
  std::optional<HitRates> hit;
  const SessionUse* session = nullptr;

  uint32_t cached_tokens() const {
    return session == nullptr ? 0 : session->beginning.cached_tokens;
  }
};

Json ReportAsJson(const GenerationReport& report);
std::string ReportAsText(const GenerationReport& report);

// {p50, p95, p99, max} of decode steps in microseconds.
Json StepsAsJson(const StepPercentiles& step);

// The name by which users know a policy.
std::string PolicyText(PolicyName policy);

}  // namespace lkv::cli
