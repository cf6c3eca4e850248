// `lkv train`: fits a predictor on traces.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace lkv::cli {

class TrainVerb {
 public:
  void AddTo(CLI::App& app);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  std::vector<std::string> traces_;
  std::string output_;
  uint64_t seed_ = 1;
  std::optional<uint32_t> minutes_;
  ThreadArguments threads_;
  bool json_ = false;
};

}  // namespace lkv::cli
