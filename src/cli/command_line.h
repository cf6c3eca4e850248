// The command line of `lkv`: which verb, with which options.
#pragma once

#include "cli/exit_code.h"

namespace lkv::cli {

// Parses, runs the verb, returns the process's exit code. Prints; installs
// signal handlers while it runs.
ExitCode RunCommandLine(int argc, const char* const* argv);

}  // namespace lkv::cli
