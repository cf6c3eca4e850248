// `lkv bench kernels`: speed of the kernels beside a plain read of memory.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace lkv::cli {

class BenchKernelsVerb {
 public:
  // Under `bench`.
  void AddTo(CLI::App& bench);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  std::string filter_;
  ThreadArguments threads_;
  uint32_t n_passes_ = 7;
  bool json_ = false;
};

}  // namespace lkv::cli
