#include "cli/generation_report.h"

#include "base/byte_text.h"
#include "base/printable_text.h"
#include "cli/active_predictor.h"
#include "cli/number_text.h"
#include "options/option_table.h"

namespace lkv::cli {
namespace {

std::string StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kLength:
      return "length";
    case StopReason::kEndOfText:
      return "end_of_text";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return {};
}

std::string StopReasonText(StopReason reason) {
  switch (reason) {
    case StopReason::kLength:
      return "stopped at the most allowed";
    case StopReason::kEndOfText:
      return "stopped at the end of the text";
    case StopReason::kCancelled:
      return "stopped on request";
  }
  return {};
}

std::string ValueOf(const char* key, const CacheOptions& cache) {
  return FormatOption(*FindOption(key), cache);
}

// null where nothing was forecast.
Json PredictorAsJson(const std::optional<ActivePredictor>& predictor) {
  if (!predictor) return {};
  return predictor->name;
}

Json SessionAsJson(const SessionUse* use) {
  if (use == nullptr) return {};
  const Sessions::Beginning& beginning = use->beginning;
  Json saved;
  if (use->saved) {
    saved = {{"id", use->saved->id},
             {"tokens", use->saved->n_tokens},
             {"bytes", use->saved->n_bytes},
             {"seconds", use->saved->seconds},
             {"made_room", use->saved->n_made_room}};
  }
  return {{"name", Printable(use->name)},
          {"restored_from", beginning.cached_tokens > 0
                                ? Json(Printable(beginning.session))
                                : Json()},
          {"restore_seconds", beginning.seconds},
          {"restored_bytes", beginning.read_bytes},
          {"miss", beginning.miss.empty() ? Json() : Json(beginning.miss)},
          {"miss_detail", beginning.detail},
          {"saved", saved}};
}

Json GuardAsJson(const std::optional<RecallGuard>& guard) {
  if (!guard) return {};
  Json changes = Json::array();
  for (const RecallGuard::Change& change : guard->changes()) {
    changes.push_back({{"tokens", change.n_tokens},
                       {"level", change.level},
                       {"recall_gap", change.gap}});
  }
  return {{"level", guard->level()},
          {"recall_gap", guard->gap()},
          {"samples", guard->n_samples()},
          {"changes", guard->n_changes()},
          {"last_changes", changes}};
}

std::string GuardText(const RecallGuard& guard) {
  if (guard.n_samples() == 0) return {};
  std::string out = "           " + FormatPercent(guard.gap()) +
                    " of the attention was left out (" +
                    FormatCount(guard.n_samples(), "sample") + ")\n";
  for (const RecallGuard::Change& change : guard.changes()) {
    out += "           at token " + FormatCount(change.n_tokens) +
           " the guard went to level " + std::to_string(change.level) + ": " +
           FormatPercent(change.gap) + " left out\n";
  }
  return out;
}

// "session    600 tokens of 'book' in 12 ms; kept as 'book', ..."
std::string SessionText(const SessionUse& use) {
  const Sessions::Beginning& beginning = use.beginning;
  std::string out = "session    ";
  if (beginning.cached_tokens > 0) {
    out += FormatCount(beginning.cached_tokens, "token") + " of " +
           Quoted(beginning.session) + " in " +
           FormatSeconds(beginning.seconds) + ", " +
           FormatBytes(beginning.read_bytes);
  } else {
    out += "nothing to begin with: " + beginning.miss;
    if (!beginning.detail.empty()) out += ", " + beginning.detail;
  }
  out += "\n";
  if (use.saved) {
    out += "           kept as " + Quoted(use.name) + ": " +
           FormatCount(use.saved->n_tokens, "token") + ", " +
           FormatBytes(use.saved->n_bytes) + " in " +
           FormatSeconds(use.saved->seconds) + "\n";
    if (use.saved->n_made_room > 0) {
      out += "           " + FormatCount(use.saved->n_made_room, "session") +
             " used longest ago left for it\n";
    }
  }
  return out;
}

Json ForecastAsJson(const GenerationReport& report,
                    const std::optional<ActivePredictor>& predictor) {
  if (!predictor) return {};
  Json document = {{"reason", predictor->reason}};
  if (const auto& verdict = report.generation.kv.forecast) {
    document["returns"] = verdict->n_returns;
    document["network_rank"] = verdict->network_rank;
    document["average_rank"] = verdict->average_rank;
  }
  return document;
}

}  // namespace

Json StepsAsJson(const StepPercentiles& step) {
  return {{"p50", step.p50_us},
          {"p95", step.p95_us},
          {"p99", step.p99_us},
          {"max", step.max_us}};
}

std::string PolicyText(PolicyName policy) {
  CacheOptions cache;
  cache.policy = policy;
  return ValueOf("policy", cache);
}

Json ReportAsJson(const GenerationReport& report) {
  const Generation& g = report.generation;
  const SequenceStats& kv = g.kv;
  const auto predictor = ActivePredictorOf(report.cache, kv);
  Json hit = nullptr;
  if (report.hit) {
    hit = {{"mass", report.hit->mass},
           {"topk", report.hit->topk},
           {"raw", report.hit->raw},
           {"sampled_steps", report.hit->sampled_steps}};
  }
  return {{"text", g.text},
          {"prompt_tokens", report.prompt_tokens},
          {"cached_tokens", report.cached_tokens()},
          {"generated_tokens", g.tokens.size()},
          {"stop_reason", StopReasonName(g.stop_reason)},
          {"prefill",
           {{"tokens", g.times.prefill_tokens},
            {"seconds", g.times.prefill_s},
            {"tokens_per_second", g.times.PrefillRate()}}},
          {"decode",
           {{"tokens_per_second", g.times.DecodeRate()},
            {"step_us", StepsAsJson(SummarizeSteps(g.times.step_us))},
            {"policy_share", g.times.PolicyShare()}}},
          {"kv",
           {{"policy", ValueOf("policy", report.cache)},
            {"predictor", PredictorAsJson(predictor)},
            {"forecast", ForecastAsJson(report, predictor)},
            {"kv_type", ValueOf("kv_type", report.cache)},
            {"budget_bytes", kv.budget_bytes},
            {"resident_bytes_max", kv.resident_bytes_max},
            {"full_bytes", kv.full_bytes},
            {"metadata_bytes", kv.metadata_bytes},
            {"read_bytes_per_step", kv.read_bytes_last_step},
            {"evicted_tokens", kv.evicted_tokens},
            {"window_tokens", kv.window_tokens},
            {"tiers",
             {{"L1", kv.resident_bytes - kv.cold_bytes},
              {"L2", kv.cold_bytes},
              {"L3", 0}}},
            {"guard", GuardAsJson(kv.guard)}}},
          {"hit", hit},
          {"session", SessionAsJson(report.session)}};
}

std::string ReportAsText(const GenerationReport& report) {
  const Generation& g = report.generation;
  const StepTimes& times = g.times;
  const SequenceStats& kv = g.kv;
  std::string out;

  out += "prompt     ";
  if (times.prefill_tokens + report.cached_tokens() < report.prompt_tokens) {
    out += FormatCount(times.prefill_tokens) + " of ";
  }
  out += FormatCount(report.prompt_tokens, "token");
  if (report.cached_tokens() > 0) {
    out += ", " + FormatCount(times.prefill_tokens) + " of them read";
  }
  if (times.prefill_s > 0) {
    out += " in " + FormatSeconds(times.prefill_s) + ", " +
           FormatRate(times.PrefillRate());
  }
  out += "\ngenerated  " + FormatCount(g.tokens.size(), "token");
  if (!times.step_us.empty()) out += ", " + FormatRate(times.DecodeRate());
  out += ", " + StopReasonText(g.stop_reason) + "\n";
  if (!times.step_us.empty()) {
    const StepPercentiles step = SummarizeSteps(times.step_us);
    out += "           step p50 " + FormatSeconds(step.p50_us * 1e-6) +
           ", p99 " + FormatSeconds(step.p99_us * 1e-6) + ", policy " +
           FormatPercent(times.PolicyShare()) + " of it\n";
  }

  const auto predictor = ActivePredictorOf(report.cache, kv);
  out += "kv cache   " + ValueOf("policy", report.cache) +
         (predictor ? " by " + predictor->name : "") + ", " +
         ValueOf("kv_type", report.cache) + ", budget " +
         ValueOf("budget", report.cache) + " = " +
         FormatBytes(kv.budget_bytes) + "\n";
  if (predictor) out += "           " + predictor->reason + "\n";
  out += "           " + FormatBytes(kv.resident_bytes_max) +
         " resident at most; keeping everything takes " +
         FormatBytes(kv.full_bytes) + "\n";
  if (kv.full_bytes < kv.resident_bytes_max) {
    out +=
        "           (more than everything: pages are part-filled, and their "
        "tables count)\n";
  }
  if (kv.cold_bytes > 0) {
    out += "           " + FormatBytes(kv.resident_bytes - kv.cold_bytes) +
           " in L1, " + FormatBytes(kv.cold_bytes) +
           " in L2 (coarse copies of all but the newest)\n";
  }
  out += std::string("           ") +
         (kv.cold_bytes > 0 ? "only in L2 " : "evicted ") +
         FormatCount(kv.evicted_tokens) + " of " +
         FormatCount(kv.n_tokens, "token") + "; the last step read " +
         FormatBytes(kv.read_bytes_last_step) + "\n";
  if (kv.guard) out += GuardText(*kv.guard);

  if (report.session != nullptr) out += SessionText(*report.session);
  if (report.hit) {
    const HitRates& hit = *report.hit;
    out += "hit rate   " + FormatPercent(hit.mass) +
           " of the attention to tokens that may be evicted was kept\n" +
           "           " + FormatPercent(hit.topk) +
           " of those tokens that hold 90 % of it\n" + "           " +
           FormatPercent(hit.raw) +
           " of all attention, first and newest tokens included\n" +
           "           (measured at " + FormatCount(hit.sampled_steps, "step") +
           ")\n";
  }
  return out;
}

}  // namespace lkv::cli
