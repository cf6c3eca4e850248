// `lkv bench`: what this machine can do.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/bench_io_verb.h"
#include "cli/bench_kernels_verb.h"
#include "cli/bench_policies_verb.h"
#include "cli/bench_sessions_verb.h"
#include "cli/bench_speed_verb.h"
#include "cli/bench_window_verb.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace lkv::cli {

class BenchVerb {
 public:
  void AddTo(CLI::App& app);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  const CLI::App* bench_ = nullptr;
  BenchSpeedVerb speed_;
  BenchKernelsVerb kernels_;
  BenchIoVerb io_;
  BenchPoliciesVerb policies_;
  BenchWindowVerb window_;
  BenchSessionsVerb sessions_;
};

}  // namespace lkv::cli
