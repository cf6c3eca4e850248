// `lkv session`: what is kept, and what becomes of it.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "engine/sessions.h"

namespace lkv::cli {

class SessionVerb {
 public:
  void AddTo(CLI::App& app);
  // Requires that the command line named this verb.
  ExitCode Run(Output& out) const;

 private:
  ExitCode List(Sessions& sessions, Output& out) const;
  ExitCode Show(Sessions& sessions, Output& out) const;
  ExitCode Verify(Sessions& sessions, Output& out) const;
  ExitCode Export(Sessions& sessions, Output& out) const;
  ExitCode Import(Sessions& sessions, Output& out) const;
  ExitCode Delete(Sessions& sessions, Output& out) const;
  ExitCode Pin(Sessions& sessions, Protection protection, Output& out) const;
  ExitCode Collect(Sessions& sessions, Output& out) const;

  // Those named, or all. kNotFound: one of them is not there.
  Result<std::vector<SessionRecord>> Named(Sessions& sessions) const;

  CLI::App* verb_ = nullptr;
  ConfigArguments config_;
  std::vector<std::string> names_;  // names or ids
  std::string name_;
  std::string file_;
  bool all_ = false;
  bool json_ = false;
};

}  // namespace lkv::cli
