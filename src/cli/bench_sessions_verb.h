// `lkv bench sessions`: restoring a text against reading it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <vector>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace lkv::cli {

class BenchSessionsVerb {
 public:
  // Under `bench`.
  void AddTo(CLI::App& bench);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  ModelArguments model_;
  ConfigArguments config_;
  std::vector<uint32_t> lengths_ = {2048, 8192};
  uint32_t n_rounds_ = 5;
  bool json_ = false;
};

}  // namespace lkv::cli
