#include "testing/child_process.h"

#include <fcntl.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "base/check.h"
#include "testing/deny_huge_pages.h"

extern char** environ;

namespace lkv {
namespace {

struct Pipe {
  Pipe() { CHECK(pipe2(ends, O_CLOEXEC) == 0); }
  int ends[2];  // read, write
};

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> block;
  ssize_t n = 0;
  while ((n = read(fd, block.data(), block.size())) > 0) {
    text.append(block.data(), static_cast<size_t>(n));
  }
  close(fd);
  return text;
}

// Reads a terminal's output, and signals the child when it shows what `options`
// wait for.
std::string WatchTerminal(int fd, const ChildOptions& options, pid_t child) {
  std::string text;
  std::array<char, 4096> block;
  ssize_t n = 0;
  bool sent = false;
  while ((n = read(fd, block.data(), block.size())) > 0) {
    text.append(block.data(), static_cast<size_t>(n));
    if (!sent && text.find(options.interrupt_at) != std::string::npos) {
      kill(child, options.interrupt_signal);
      sent = true;
    }
  }
  close(fd);
  return text;
}

void PrepareEnvironment(const ChildOptions& options) {
  std::vector<std::string> hidden;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.starts_with("LKV_")) {
      hidden.push_back(text.substr(0, text.find('=')));
    }
  }
  for (const std::string& name : hidden) unsetenv(name.c_str());
  for (const auto& [name, value] : options.environment) {
    setenv(name.c_str(), value.c_str(), 1);
  }
}

// Leaves this process the first core of those that it may use.
void KeepOneCore() {
  cpu_set_t allowed, first;
  CHECK(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
  int core = 0;
  while (!CPU_ISSET(core, &allowed)) ++core;
  CPU_ZERO(&first);
  CPU_SET(core, &first);
  CHECK(sched_setaffinity(0, sizeof(first), &first) == 0);
}

}  // namespace

ChildResult RunLkv(const std::vector<std::string>& arguments,
                   const ChildOptions& options) {
  Pipe in, out, err;
  int terminal = -1, terminal_child = -1;
  const bool watch = !options.interrupt_at.empty();
  if (watch) {
    CHECK(openpty(&terminal, &terminal_child, nullptr, nullptr, nullptr) == 0);
  }

  // Before the child lives: what it wrote in between would be accepted.
  if (options.close_stdout) close(out.ends[0]);
  // A child that reads no input must not end the test; the child itself gets
  // the ordinary behaviour back.
  signal(SIGPIPE, SIG_IGN);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(in.ends[0], STDIN_FILENO);
    dup2(watch ? terminal_child : err.ends[1], STDERR_FILENO);
    if (!options.stdout_path.empty()) {
      dup2(open(options.stdout_path.c_str(), O_WRONLY), STDOUT_FILENO);
    } else {
      dup2(out.ends[1], STDOUT_FILENO);
    }
    if (watch) {
      close(terminal);
      close(terminal_child);
    }
    signal(SIGPIPE, SIG_DFL);
    PrepareEnvironment(options);
    if (!options.may_fill_files) {
      const rlimit limit = {.rlim_cur = 0, .rlim_max = 0};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (options.address_limit_bytes > 0) {
      const rlimit limit = {.rlim_cur = options.address_limit_bytes,
                            .rlim_max = options.address_limit_bytes};
      setrlimit(RLIMIT_AS, &limit);
    }
    if (options.one_core) KeepOneCore();
    if (options.deny_huge_pages) CHECK(DenyHugePages());
    std::vector<char*> argv = {const_cast<char*>(LKV_BINARY)};
    for (const std::string& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    execv(LKV_BINARY, argv.data());
    _exit(127);
  }

  close(in.ends[0]);
  close(out.ends[1]);
  close(err.ends[1]);
  if (watch) close(terminal_child);
  ChildResult result;
  std::thread feed([&] {
    size_t at = 0;
    while (at < options.input.size()) {
      const ssize_t n = write(in.ends[1], options.input.data() + at,
                              options.input.size() - at);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
    close(in.ends[1]);
  });
  std::thread collect([&] {
    if (!options.close_stdout) result.out = ReadAll(out.ends[0]);
  });
  if (watch) {
    result.err = WatchTerminal(terminal, options, child);
    close(err.ends[0]);
  } else {
    result.err = ReadAll(err.ends[0]);
  }
  collect.join();
  feed.join();
  int status = 0;
  waitpid(child, &status, 0);
  result.exit_code =
      WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace lkv
