// Exit codes of `lkv` and the one form in which it reports an error.
#pragma once

#include <string>
#include <string_view>

#include "lookaheadkv/status.h"

namespace lkv::cli {

enum class ExitCode {
  kDone = 0,
  kFailed = 1,        // while working; also a closed stdout
  kWrongUse = 2,      // command line or configuration
  kMissing = 3,       // file, model or permission; a damaged model
  kInterrupted = 130  // Ctrl-C
};

ExitCode ExitCodeOf(const Status& status);

// Prints "lkv: <message>" on one line of stderr.
void PrintError(std::string_view message);

// Prints the status as an error and gives its exit code.
ExitCode Fail(const Status& status);

}  // namespace lkv::cli
