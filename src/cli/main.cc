#include <cstdio>
#include <cstdlib>
#include <new>

#include "cli/command_line.h"
#include "cli/exit_code.h"

namespace {

// Where not even a command line can be read, or a message put together.
void PrintOutOfMemory() {
  std::fputs(
      "lkv: out of memory: the system refuses memory; free some or raise the "
      "limits of this process (ulimit -v, -d)\n",
      stderr);
}

// The tables of the libraries linked in are built before main(), where nothing
// could catch what they throw.
struct EarlyMemoryGuard {
  EarlyMemoryGuard() {
    std::set_new_handler([] {
      PrintOutOfMemory();
      std::_Exit(static_cast<int>(lkv::cli::ExitCode::kFailed));
    });
  }
};
// 101 is the first that programs may have: ahead of everybody else's.
__attribute__((init_priority(101))) EarlyMemoryGuard early_memory_guard;

}  // namespace

int main(int argc, char** argv) {
  std::set_new_handler(nullptr);  // from here on, lack of memory is thrown
  try {
    return static_cast<int>(lkv::cli::RunCommandLine(argc, argv));
  } catch (const std::bad_alloc&) {
    PrintOutOfMemory();
    return static_cast<int>(lkv::cli::ExitCode::kFailed);
  }
}
