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

// The word for a code that is a failure, as JSON documents say it:
// "wrong_use".
std::string_view ExitCodeName(ExitCode code);

// What a failure says to whoever uses the options. The engine's words on the
// length of a context, and no others, name fields of EngineOptions; here they
// are the options: "ctx_tokens" is --ctx.
std::string MessageOf(const Status& status);

// Prints "lkv: <message>" on one line of stderr. The message may hold any
// bytes: those that would move a terminal's cursor are spelled out.
void PrintError(std::string_view message);

}  // namespace lkv::cli
