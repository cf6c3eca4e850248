// Runs the real `lkv` as a child, for tests. A test binary that links it
// defines LKV_BINARY, the path of the program.
#pragma once

#include <signal.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lkv {

struct ChildResult {
  int exit_code = -1;  // 128 + n when ended by signal n
  std::string out;
  std::string err;
};

struct ChildOptions {
  std::string input;  // stdin
  std::vector<std::pair<std::string, std::string>> environment;
  std::string stdout_path;           // instead of collecting: /dev/full
  bool close_stdout = false;         // stdout is a pipe that nobody reads
  uint64_t address_limit_bytes = 0;  // as of ulimit -v; 0: none
  bool may_fill_files = true;        // false: as of ulimit -f 0
  bool one_core = false;             // it may use but one core
  bool deny_huge_pages = false;      // as on a kernel without them
  // stderr is a terminal; as soon as it shows this text, the signal is sent.
  std::string interrupt_at;
  int interrupt_signal = SIGINT;
};

// All LKV_ variables of this process are hidden from the child.
ChildResult RunLkv(const std::vector<std::string>& arguments,
                   const ChildOptions& options = {});

}  // namespace lkv
