// `lkv eval`: what budgets and policies change in the predictions, in what can
// still be asked for, and in long texts.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "eval/closed_loop.h"
#include "eval/long_generation.h"
#include "eval/recall.h"

namespace lkv::cli {

// What is to be measured: the suites that were asked for.
struct EvalPlan {
  std::optional<ClosedLoopOptions> fidelity;
  std::optional<RecallOptions> recall;
  std::optional<LongGenerationOptions> generation;

  bool NeedsTexts() const { return fidelity || generation; }
};

class EvalVerb {
 public:
  void AddTo(CLI::App& app);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  Result<EvalPlan> ReadPlan() const;
  Result<std::vector<Budget>> ReadBudgets() const;
  Result<std::vector<RecallTask>> ReadTasks() const;
  bool Measures(std::string_view suite) const;

  ModelArguments model_;
  ConfigArguments config_;
  std::vector<std::string> suites_ = {"fidelity"};
  std::vector<std::string> texts_;
  std::vector<std::string> budgets_ = {"12.5%", "25%"};
  std::vector<std::string> policies_ = {"streaming", "observed", "snapkv",
                                        "tova",      "random",   "lookahead"};
  std::optional<std::string> reading_;
  std::optional<std::string> tiers_;
  std::string continuation_ = "next";
  std::string budget_scope_ = "window";
  std::string seen_queries_ = "sampled";
  std::optional<uint32_t> context_tokens_;
  uint32_t forced_tokens_ = 256;
  uint32_t n_windows_ = 5;
  std::vector<std::string> tasks_;
  uint32_t n_examples_ = 8;
  uint32_t new_tokens_ = 2048;
  bool json_ = false;
};

}  // namespace lkv::cli
