// `lkv demo`: what a KV budget costs and saves on one text, by policy.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "eval/demo.h"

namespace lkv::cli {

class DemoVerb {
 public:
  void AddTo(CLI::App& app);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  Result<DemoOptions> ReadOptions(const Configuration& configuration) const;
  // Whether the command line or the configuration names a budget.
  bool NamesBudget(const Configuration& configuration) const {
    return budget_ || configuration.IsSet("budget");
  }
  Status FitIntoTrained(uint32_t trained_tokens, DemoOptions* options) const;

  ModelArguments model_;
  ConfigArguments config_;
  // Else the configuration's, else 25% or what the source table saves by.
  std::optional<std::string> budget_;
  std::vector<std::string> policies_;  // empty: those of DemoOptions
  std::optional<uint32_t> context_tokens_;
  std::optional<std::string> text_file_;
  bool source_table_ = false;
  bool json_ = false;
};

}  // namespace lkv::cli
