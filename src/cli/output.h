// Output: what a verb writes to stdout, what it leaves there when it fails, and
// what it learns when nobody reads it any more. Progress: a bar on stderr, only
// where a person can see it.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "lookaheadkv/status.h"

namespace lkv::cli {

// What stdout holds: text, or exactly one JSON document (--json).
enum class OutputFormat { kText, kJson };

class Output {
 public:
  // In JSON, a Ctrl-C that ends the process leaves a document too.
  Output(OutputFormat format, Interrupt& interrupt);

  // Writes at once, unbuffered by us. False when stdout takes no more: work
  // that only feeds it should end.
  bool Write(std::string_view text);

  // Says on stderr why the verb ends, and in JSON on stdout as well, where
  // nothing stands yet: {"error": {"message": ..., "code": "wrong_use"}}.
  // Gives the code to leave with.
  ExitCode Fail(const Status& status);

  // The code to leave with when the work itself ended with `code`. A reader
  // that closed the pipe has what it wanted: kFailed, without a word. Any other
  // failure to write (a full disk) is reported.
  ExitCode Finish(ExitCode code) const;

 private:
  const OutputFormat format_;
  Interrupt& interrupt_;
  bool used_ = false;  // something was written
  int errno_ = 0;      // of the first write that failed
};

bool StdinIsTerminal();

// "prompt  ######....  2,048 / 6,000", redrawn in place and erased at the end.
// Does nothing unless stderr is a terminal.
class Progress {
 public:
  explicit Progress(std::string label) : label_(std::move(label)) {}
  ~Progress() { Erase(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `what` stands behind the bar: the part of the work that is under way.
  void Show(uint64_t done, uint64_t total, std::string_view what = {});
  // A line without a bar, for work of unknown length.
  void Show(std::string_view what);
  void Erase();

 private:
  void Draw(const std::string& line);

  const std::string label_;
  bool drawn_ = false;
};

}  // namespace lkv::cli
