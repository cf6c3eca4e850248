#include <cstdio>
#include <new>

#include "cli/command_line.h"
#include "cli/exit_code.h"

int main(int argc, char** argv) {
  using lkv::cli::ExitCode;
  try {
    return static_cast<int>(lkv::cli::RunCommandLine(argc, argv));
  } catch (const std::bad_alloc&) {
    // Where not even a command line can be read, or a message put together.
    std::fputs(
        "lkv: out of memory: the system refuses memory; free some or raise the "
        "limits of this process (ulimit -v, -d)\n",
        stderr);
    return static_cast<int>(ExitCode::kFailed);
  }
}
