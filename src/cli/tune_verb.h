// `lkv tune`: searches settings and budget for the user's own texts.
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
#include "cli/text_files.h"
#include "cli/tune_report.h"

namespace lkv::cli {

class TuneVerb {
 public:
  void AddTo(CLI::App& app);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  // What to search and for what, as far as it is known without the model.
  Result<TuneReport> ReadOptions() const;
  Status CheckOutputs() const;
  // Completes the report.
  Status Search(Engine& engine, const std::vector<TextFile>& files,
                const Interrupt& interrupt, TuneReport* report) const;
  Status WriteOutputs(const TuneReport& report) const;

  ModelArguments model_;
  ConfigArguments config_;
  std::vector<std::string> texts_;
  std::optional<std::string> target_agreement_, target_memory_;
  std::vector<std::string> budgets_ = {"25%", "50%", "75%"};
  std::string html_, yaml_;
  uint32_t minutes_ = 10;
  uint32_t context_tokens_ = 1024;
  uint32_t forced_tokens_ = 128;
  uint32_t n_windows_ = 8;
  uint64_t seed_ = 1;
  bool json_ = false;
};

}  // namespace lkv::cli
