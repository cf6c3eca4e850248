// What `lkv tune` found, as text, as JSON and as a block of configuration.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bootstrap.h"
#include "cli/json_document.h"
#include "eval/tuning.h"
#include "eval/tuning_measure.h"

namespace lkv::cli {

// A search and what it was about.
struct TuneReport {
  TuningSetup setup;
  TuningProblem problem;
  TuningResult result;
  std::vector<std::string> window_names;
  size_t n_texts = 0;
  double seconds = 0;
  Budget memory;  // as --target-memory was given
};

// A point of the frontier: means over report.result.windows.
struct TunePoint {
  std::string settings;  // "defaults", "unit page"
  TuningCandidate candidate;
  TuningMeans means;
  std::optional<Interval> kl_ci95, agreement_ci95;  // none of one window
  bool is_default = false;                          // its settings are
  bool is_best = false;
  bool is_dominated = false;  // another has neither more memory nor more KL
};
// By memory.
std::vector<TunePoint> PointsOf(const TuneReport& report);

// What was held on average: "2.0 MiB".
std::string MemoryText(const TuningMeans& means);
// "the least memory with a top-1 agreement of 95.0 %".
std::string GoalText(const TuneReport& report);
// The figures of the best point in one sentence.
std::string BestText(const TuneReport& report);
// How the challenger fared, in one sentence.
std::string DuelText(const TuneReport& report);
// "31 settings and budgets tried in 180 runs, 479 s; the time limit cut the
// search short".
std::string EffortText(const TuneReport& report);
// "2 texts, 10 windows of 2,048 and 128 tokens; the context is read within the
// budget".
std::string WindowsText(const TuneReport& report);

std::string TuneAsText(const TuneReport& report);
Json TuneAsJson(const TuneReport& report);

// The best configuration, with what was measured of it in comments.
std::string TuneAsConfig(const TuneReport& report);

}  // namespace lkv::cli
