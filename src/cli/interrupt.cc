#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "cli/exit_code.h"

namespace lkv::cli {
namespace {

// Read and written by the handler, hence lock-free and outside any object.
std::atomic<bool> at_once{true};
std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void OnSignal(int) {
  if (at_once || requested.exchange(true)) {
    constexpr char kLine[] = "\nlkv: interrupted; nothing was finished\n";
    [[maybe_unused]] const auto written =
        write(STDERR_FILENO, kLine, sizeof(kLine) - 1);
    _exit(static_cast<int>(ExitCode::kInterrupted));
  }
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
  Install(SIGINT, OnSignal);
  Install(SIGPIPE, SIG_IGN);
}

Interrupt::~Interrupt() {
  Install(SIGINT, SIG_DFL);
  Install(SIGPIPE, SIG_DFL);
}

void Interrupt::EndAtOnce() { at_once = true; }
void Interrupt::SetFlag() { at_once = false; }
bool Interrupt::Requested() const { return requested; }
void Interrupt::Clear() { requested = false; }

}  // namespace lkv::cli
