// `lkv bench speed`: decode and prefill speed over depth, budget and batch.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "eval/speed.h"

namespace lkv::cli {

class BenchSpeedVerb {
 public:
  // Under `bench`.
  void AddTo(CLI::App& bench);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  Result<SpeedOptions> ReadOptions() const;

  ModelArguments model_;
  ConfigArguments config_;
  std::vector<uint32_t> depths_ = {0, 2048, 8192};
  std::vector<uint32_t> batches_ = {1};
  std::vector<uint32_t> prefills_ = {512, 2048, 8192};
  uint32_t gen_tokens_ = 128;
  // Empty: the configuration's, or full and 25%.
  std::vector<std::string> budgets_;
  std::vector<std::string> kv_types_;  // empty: the configuration's
  bool shared_prompt_ = false;
  bool teacher_forced_ = false;
  bool json_ = false;
};

}  // namespace lkv::cli
