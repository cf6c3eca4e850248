#include "cli/command_line.h"

int main(int argc, char** argv) {
  return static_cast<int>(lkv::cli::RunCommandLine(argc, argv));
}
