#include "cli/exit_code.h"

#include <cstdio>

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

void PrintError(std::string_view message) {
  std::string line = "lkv: ";
  for (char c : message) line += c == '\n' || c == '\r' ? ' ' : c;
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

ExitCode Fail(const Status& status) {
  PrintError(status.message());
  return ExitCodeOf(status);
}

}  // namespace lkv::cli
