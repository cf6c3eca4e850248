#include "cli/terminal_guard.h"

#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>

namespace lkv::cli {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGHUP, SIGQUIT};

// Read by handlers, hence outside any object.
termios remembered = {};
std::atomic<bool> is_remembered{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void OnSignal(int signal_number) {
  TerminalGuard::Restore();
  // SA_RESETHAND has put the default back: this one ends the process.
  raise(signal_number);
}

}  // namespace

TerminalGuard::TerminalGuard() {
  is_remembered = tcgetattr(STDIN_FILENO, &remembered) == 0;
  for (int signal_number : kSignals) {
    struct sigaction before = {};
    sigaction(signal_number, nullptr, &before);
    // nohup and the like have a reason.
    if (before.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESETHAND;
    sigaction(signal_number, &action, nullptr);
  }
}

TerminalGuard::~TerminalGuard() {
  for (int signal_number : kSignals) {
    struct sigaction now = {};
    sigaction(signal_number, nullptr, &now);
    if (now.sa_handler != OnSignal) continue;
    now.sa_handler = SIG_DFL;
    now.sa_flags = 0;
    sigaction(signal_number, &now, nullptr);
  }
  is_remembered = false;
}

void TerminalGuard::Restore() {
  if (!is_remembered || tcgetpgrp(STDIN_FILENO) != getpgrp()) return;
  tcsetattr(STDIN_FILENO, TCSANOW, &remembered);
}

}  // namespace lkv::cli
