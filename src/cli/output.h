// Output: what a verb writes to stdout, and what it learns when nobody reads it
// any more. Progress: a bar on stderr, only where a person can see it.
//
// Thread-compatible.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/exit_code.h"

namespace lkv::cli {

class Output {
 public:
  // Writes at once, unbuffered by us. False when stdout takes no more: work
  // that only feeds it should end.
  bool Write(std::string_view text);

  // The code to leave with when the work itself ended with `code`. A reader
  // that closed the pipe has what it wanted: kFailed, without a word. Any other
  // failure to write (a full disk) is reported.
  ExitCode Finish(ExitCode code) const;

 private:
  int errno_ = 0;  // of the first write that failed
};

bool StdinIsTerminal();

// "prefill  ######....  2,048 / 6,000", redrawn in place and erased at the end.
// Does nothing unless stderr is a terminal.
class Progress {
 public:
  explicit Progress(std::string label) : label_(std::move(label)) {}
  ~Progress() { Erase(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(uint64_t done, uint64_t total);
  // A line without a bar, for work of unknown length.
  void Show(std::string_view what);
  void Erase();

 private:
  void Draw(const std::string& line);

  const std::string label_;
  bool drawn_ = false;
};

}  // namespace lkv::cli
