// `lkv trace`: attention traces, what policies are replayed on.
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
#include "trace/synthetic_trace.h"

namespace lkv::cli {

class TraceVerb {
 public:
  void AddTo(CLI::App& app);
  ExitCode Run(Output& out, Interrupt& interrupt) const;

 private:
  ExitCode Record(Output& out, Interrupt& interrupt) const;
  ExitCode Synthesize(Output& out) const;
  ExitCode ShowInfo(Output& out) const;

  const CLI::App* verb_ = nullptr;
  ModelArguments model_;
  std::string text_file_;
  std::string trace_file_;
  std::optional<uint32_t> n_steps_;
  std::vector<uint32_t> layers_;
  bool reread_ = false;
  SyntheticTraceOptions synthetic_;
  bool json_ = false;
};

}  // namespace lkv::cli
