// What a shell finds when a signal has ended a chat at its prompt.
#include "cli/terminal_guard.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <string>

#include "cli/interrupt.h"
#include "cli/line_reader.h"

namespace lkv::cli {
namespace {

constexpr tcflag_t kLineMode = ICANON | ECHO;

// A child that waits for a line on a terminal of its own.
struct Prompt {
  pid_t pid = -1;
  int terminal = -1;  // our end of it

  Prompt() {
    pid = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (pid != 0) return;
    Interrupt interrupt;
    interrupt.SetFlag();
    LineReader reader("what? ", interrupt);
    std::string line;
    const LineReader::Event event = reader.Next(&line);
    _exit(event == LineReader::Event::kInterrupted ? 7 : 8);
  }

  termios Settings() const {
    termios settings = {};
    EXPECT_EQ(tcgetattr(terminal, &settings), 0);
    return settings;
  }
  // Until the child shows its prompt and edits lines itself, which of the two
  // comes first being libedit's affair.
  void WaitForPrompt() const {
    std::string shown;
    char byte = 0;
    while (shown.find("what? ") == std::string::npos &&
           read(terminal, &byte, 1) == 1) {
      shown += byte;
    }
    while ((Settings().c_lflag & kLineMode) != 0) sched_yield();
  }
  int WaitForEnd() const {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return status;
  }
};

class EndingSignalTest : public testing::TestWithParam<int> {};

TEST_P(EndingSignalTest, ASignalThatEndsThePromptLeavesTheTerminalAsItWas) {
  const Prompt prompt;
  prompt.WaitForPrompt();
  kill(prompt.pid, GetParam());
  const int status = prompt.WaitForEnd();
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), GetParam());
  EXPECT_EQ(prompt.Settings().c_lflag & kLineMode, kLineMode);
  close(prompt.terminal);
}

INSTANTIATE_TEST_SUITE_P(Signals, EndingSignalTest,
                         testing::Values(SIGTERM, SIGHUP, SIGQUIT));

TEST(TerminalGuardTest, CtrlCIsStillAnEventOfTheReader) {
  const Prompt prompt;
  prompt.WaitForPrompt();
  kill(prompt.pid, SIGINT);
  const int status = prompt.WaitForEnd();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(prompt.Settings().c_lflag & kLineMode, kLineMode);
  close(prompt.terminal);
}

}  // namespace
}  // namespace lkv::cli
