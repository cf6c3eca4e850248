#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string_view>
#include <utility>

#include "cli/exit_code.h"
#include "cli/terminal_guard.h"

namespace lkv::cli {
namespace {

// Read and written by the handler, hence lock-free and outside any object.
std::atomic<bool> at_once{true};
std::atomic<bool> requested{false};
std::atomic<bool> at_terminal{false};
std::atomic<const std::string*> last_words{nullptr};
static_assert(std::atomic<bool>::is_always_lock_free);
static_assert(std::atomic<const std::string*>::is_always_lock_free);

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void OnSignal(int) {
  if (!at_once && !requested.exchange(true)) return;
  TerminalGuard::Restore();
  if (const std::string* words = last_words) WriteAll(STDOUT_FILENO, *words);
  // On a terminal the line holds a bar and "^C".
  if (at_terminal) WriteAll(STDERR_FILENO, "\r\x1b[K");
  WriteAll(STDERR_FILENO, "lkv: ");
  WriteAll(STDERR_FILENO, Interrupt::kMessage);
  WriteAll(STDERR_FILENO, "\n");
  _exit(static_cast<int>(ExitCode::kInterrupted));
}

void Install(int signal_number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  // No SA_RESTART: waiting for a line of input must end on Ctrl-C.
  sigaction(signal_number, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  requested = false;
  at_once = true;
  at_terminal = isatty(STDERR_FILENO) == 1;
  Install(SIGINT, OnSignal);
  Install(SIGTERM, OnSignal);
  Install(SIGHUP, OnSignal);
  Install(SIGPIPE, SIG_IGN);
  Install(SIGXFSZ, SIG_IGN);
}

Interrupt::~Interrupt() {
  Install(SIGINT, SIG_DFL);
  Install(SIGTERM, SIG_DFL);
  Install(SIGHUP, SIG_DFL);
  Install(SIGPIPE, SIG_DFL);
  Install(SIGXFSZ, SIG_DFL);
  DropLastWords();
}

void Interrupt::EndAtOnce() { at_once = true; }
void Interrupt::SetFlag() { at_once = false; }

void Interrupt::SetLastWords(std::string words) {
  words_ = std::move(words);
  last_words = &words_;
}
void Interrupt::DropLastWords() { last_words = nullptr; }

bool Interrupt::Requested() const { return requested; }
void Interrupt::Clear() { requested = false; }

}  // namespace lkv::cli
