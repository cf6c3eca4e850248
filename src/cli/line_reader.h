// LineReader: lines from stdin; on a terminal with editing and history.
//
// Thread-compatible. One per process at a time: it owns the terminal.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "cli/interrupt.h"

namespace lkv::cli {

class LineReader {
 public:
  // `prompt` is shown on a terminal only. `interrupt` must have SetFlag() on.
  LineReader(std::string prompt, const Interrupt& interrupt);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Sixteen bytes for each of a million tokens.
  static constexpr size_t kLongestLine = size_t{16} << 20;

  // kTooLong: a line of more than kLongestLine bytes was skipped.
  enum class Event { kLine, kTooLong, kEnd, kInterrupted };
  // The next line, without its end (LF or CR LF). Other bytes pass through as
  // they are.
  Event Next(std::string* line);

 private:
  // False at the end of the input.
  bool FillBlock();

  class Editor;  // libedit; absent when stdin is no terminal
  Event NextPlain(std::string* line);

  const Interrupt& interrupt_;
  std::unique_ptr<Editor> editor_;
  std::array<char, 4096> block_;
  std::string_view unread_;  // of block_
};

}  // namespace lkv::cli
