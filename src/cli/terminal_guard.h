// TerminalGuard: gives the terminal at stdin back as it was when a signal ends
// the process in the middle of line editing. A shell would find it without echo
// otherwise. One per process at a time, because signal handlers are.
#pragma once

namespace lkv::cli {

class TerminalGuard {
 public:
  // Remembers the terminal's settings and takes over SIGTERM, SIGHUP and
  // SIGQUIT, which still end the process as they always do.
  TerminalGuard();
  ~TerminalGuard();
  TerminalGuard(const TerminalGuard&) = delete;
  TerminalGuard& operator=(const TerminalGuard&) = delete;

  // For signal handlers: restores the settings that a living guard remembers,
  // unless the terminal serves another job now.
  static void Restore();
};

}  // namespace lkv::cli
