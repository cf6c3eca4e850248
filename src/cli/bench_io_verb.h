// `lkv bench io`: single records from a disk, as the third tier reads them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace lkv::cli {

class BenchIoVerb {
 public:
  // Under `bench`.
  void AddTo(CLI::App& bench);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  std::string folder_;
  std::vector<uint32_t> depths_ = {1, 8, 32};
  uint32_t file_mib_ = 256;
  uint32_t n_passes_ = 5;
  bool json_ = false;
};

}  // namespace lkv::cli
