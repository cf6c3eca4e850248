#include "cli/exit_code.h"

#include <cstdio>
#include <string>
#include <utility>

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

std::string MessageOf(const Status& status) {
  std::string message(status.message());
  // What they begin with. Only numbers follow: nothing that a user wrote, such
  // as the path of a file, which may hold any word.
  const bool is_of_length =
      message.starts_with("context: ") || message.starts_with("ctx_tokens: ");
  if (status.code() != StatusCode::kInvalidArgument || !is_of_length) {
    return message;
  }
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"ctx_tokens", "--ctx"},
      {"allow_beyond_trained", "--allow-beyond-trained"}};
  for (const auto& [field, option] : kNames) {
    for (size_t at = 0; (at = message.find(field, at)) != message.npos;
         at += option.size()) {
      message.replace(at, field.size(), option);
    }
  }
  return message;
}

void PrintError(std::string_view message) {
  const std::string line = "lkv: " + Printable(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace lkv::cli
