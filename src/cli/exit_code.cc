#include "cli/exit_code.h"

#include <cstdio>
#include <string>

#include "base/printable_text.h"

namespace lkv::cli {

ExitCode ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return ExitCode::kDone;
    case StatusCode::kInvalidArgument:
      return ExitCode::kWrongUse;
    case StatusCode::kNotFound:
    case StatusCode::kCorrupt:
      return ExitCode::kMissing;
    case StatusCode::kCancelled:
      return ExitCode::kInterrupted;
    case StatusCode::kOutOfMemory:
    case StatusCode::kIo:
      return ExitCode::kFailed;
  }
  return ExitCode::kFailed;
}

std::string_view ExitCodeName(ExitCode code) {
  switch (code) {
    case ExitCode::kDone:
      return "done";
    case ExitCode::kFailed:
      return "failed";
    case ExitCode::kWrongUse:
      return "wrong_use";
    case ExitCode::kMissing:
      return "missing";
    case ExitCode::kInterrupted:
      return "interrupted";
  }
  return {};
}

void PrintError(std::string_view message) {
  const std::string line = "lkv: " + Printable(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace lkv::cli
