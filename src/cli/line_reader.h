// LineReader: lines from stdin; on a terminal with editing and history.
//
// Thread-compatible. One per process at a time: it owns the terminal.
#pragma once

#include <memory>
#include <string>

#include "cli/interrupt.h"

namespace lkv::cli {

class LineReader {
 public:
  // `prompt` is shown on a terminal only. `interrupt` must have SetFlag() on.
  LineReader(std::string prompt, const Interrupt& interrupt);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  enum class Event { kLine, kEnd, kInterrupted };
  // The next line, without its end. Bytes pass through as they are.
  Event Next(std::string* line);

 private:
  class Editor;  // libedit; absent when stdin is no terminal
  Event NextPlain(std::string* line);

  const Interrupt& interrupt_;
  std::unique_ptr<Editor> editor_;
};

}  // namespace lkv::cli
