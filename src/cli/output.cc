#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/printable_text.h"
#include "cli/json_document.h"
#include "cli/number_text.h"

namespace lkv::cli {
namespace {

std::string ErrorDocument(std::string_view message, ExitCode code) {
  return DumpJson(
      {{"error", {{"message", message}, {"code", ExitCodeName(code)}}}});
}

}  // namespace

Output::Output(OutputFormat format, Interrupt& interrupt)
    : format_(format), interrupt_(interrupt) {
  if (format_ == OutputFormat::kJson) {
    interrupt_.SetLastWords(
        ErrorDocument(Interrupt::kMessage, ExitCode::kInterrupted));
  }
}

bool Output::Write(std::string_view text) {
  if (!text.empty() && !std::exchange(used_, true)) interrupt_.DropLastWords();
  while (!text.empty() && errno_ == 0) {
    const ssize_t n = write(STDOUT_FILENO, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      errno_ = errno;
    }
  }
  return errno_ == 0;
}

ExitCode Output::Fail(const Status& status) {
  // Whoever was interrupted says so in words of its own; here they are one.
  const std::string message = status.code() == StatusCode::kCancelled
                                  ? Interrupt::kMessage
                                  : MessageOf(status);
  PrintError(message);
  const ExitCode code = ExitCodeOf(status);
  if (format_ == OutputFormat::kJson && !used_) {
    Write(ErrorDocument(Printable(message), code));
  }
  return code;
}

ExitCode Output::Finish(ExitCode code) const {
  if (errno_ == 0) return code;
  if (errno_ != EPIPE) {
    PrintError(std::string("stdout: ") + std::strerror(errno_) +
               "; the output is incomplete");
  }
  return ExitCode::kFailed;
}

bool StdinIsTerminal() { return isatty(STDIN_FILENO) == 1; }

void Progress::Show(uint64_t done, uint64_t total, std::string_view what) {
  constexpr uint64_t kCells = 24;
  const uint64_t filled =
      total == 0 ? kCells : std::min(kCells, done * kCells / total);
  Draw(label_ + "  " + std::string(filled, '#') +
       std::string(kCells - filled, '.') + "  " + FormatCount(done) + " / " +
       FormatCount(total) + (what.empty() ? "" : "  " + Printable(what)));
}

void Progress::Show(std::string_view what) {
  Draw(label_ + "  " + Printable(what));
}

void Progress::Draw(const std::string& line) {
  if (isatty(STDERR_FILENO) != 1) return;
  // A line that wraps could not be redrawn in place. 79: the last column stays
  // free, some terminals wrap after it.
  constexpr size_t kWidest = 79;
  const std::string shown =
      line.size() <= kWidest ? line : line.substr(0, kWidest - 3) + "...";
  // Return to the first column, write, clear what an older line left behind.
  std::fprintf(stderr, "\r%s\x1b[K", shown.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::Erase() {
  if (!drawn_) return;
  std::fprintf(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace lkv::cli
