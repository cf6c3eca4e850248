// `lkv config`: shows, checks and explains the configuration.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/output.h"

namespace lkv::cli {

class ConfigVerb {
 public:
  void AddTo(CLI::App& app);
  // Requires that the command line named this verb.
  ExitCode Run(Output& out) const;

 private:
  ExitCode Show(Output& out) const;
  ExitCode Check(Output& out) const;
  ExitCode Explain(Output& out) const;
  ExitCode ListPresets(Output& out) const;

  CLI::App* verb_ = nullptr;
  ConfigArguments config_;
  std::string file_;  // check
  std::string key_;   // explain
  bool markdown_ = false;
  bool json_ = false;
};

}  // namespace lkv::cli
