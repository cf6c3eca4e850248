// Text from outside as a message may show it: on one line, harmless to a
// terminal. Pure.
#pragma once

#include <string>
#include <string_view>

namespace lkv {

// The text with control characters (U+0000-001F, 007F-009F) and bytes that are
// not UTF-8 as \xNN. Nothing else changes.
std::string Printable(std::string_view text);

// The same in single quotes, cut to about 60 characters.
std::string Quoted(std::string_view text);

}  // namespace lkv
