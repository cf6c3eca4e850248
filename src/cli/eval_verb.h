// `lkv eval`: what budgets and policies change in the answers.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "eval/closed_loop.h"

namespace lkv::cli {

class EvalVerb {
 public:
  void AddTo(CLI::App& app);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  Result<ClosedLoopOptions> ReadOptions() const;

  ModelArguments model_;
  ConfigArguments config_;
  std::vector<std::string> texts_;
  std::vector<std::string> budgets_ = {"12.5%", "25%"};
  std::vector<std::string> policies_ = {"streaming", "observed", "snapkv",
                                        "tova",      "random",   "lookahead"};
  std::string reading_ = "whole";
  std::string budget_scope_ = "window";
  std::string seen_queries_ = "sampled";
  uint32_t context_tokens_ = 3072;
  uint32_t forced_tokens_ = 256;
  uint32_t n_windows_ = 5;
  bool json_ = false;
};

}  // namespace lkv::cli
