// `lkv bench policies`: every policy replayed on the same traces.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "trace/policy_comparison.h"

namespace lkv::cli {

class BenchPoliciesVerb {
 public:
  // Under `bench`.
  void AddTo(CLI::App& bench);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  Result<ComparisonOptions> ReadOptions() const;

  ConfigArguments config_;
  std::vector<std::string> traces_;
  std::vector<std::string> budgets_;  // empty: the usual ones that can hold
  std::vector<std::string> policies_;
  ThreadArguments threads_;
  bool json_ = false;
};

}  // namespace lkv::cli
