// Utf8Stream: turns bytes that arrive in any portions into whole UTF-8
// characters. Thread-compatible.
#pragma once

#include <string>
#include <string_view>

namespace lkv {

// Streams token bytes as whole UTF-8 characters: holds back the bytes of an
// unfinished character (at most 3) until the rest arrives.
class Utf8Stream {
 public:
  // Returns what can be shown now. Bytes that can never become a character
  // come out as U+FFFD, one for each longest run that began like one.
  std::string Push(std::string_view bytes);
  // The rest, when no more bytes follow.
  std::string Finish();

 private:
  std::string pending_;
};

}  // namespace lkv
