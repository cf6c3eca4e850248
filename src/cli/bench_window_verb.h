// `lkv bench window`: how the window moves along recorded texts, under both
// laws.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace lkv::cli {

class BenchWindowVerb {
 public:
  // Under `bench`.
  void AddTo(CLI::App& bench);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  ConfigArguments config_;
  std::vector<std::string> traces_;
  std::string budget_ = "50%";
  std::vector<uint32_t> marks_;
  ThreadArguments threads_;
  bool json_ = false;
};

}  // namespace lkv::cli
