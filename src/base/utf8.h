// Where UTF-8 characters begin and end. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace lkv {

// What stands at the front of some bytes.
struct Utf8Front {
  enum Kind {
    kCharacter,
    kUnfinished,  // the beginning of a character, then the end
    kInvalid,     // the longest run that began like one
  } kind;
  size_t n_bytes;
};

// Requires bytes not empty. Well-formed are the sequences of the Unicode
// standard, table 3-7: no overlong forms, surrogates or values above U+10FFFF.
Utf8Front ReadUtf8Front(std::string_view bytes);

// Offset of the first byte that belongs to no whole character; npos: all do.
size_t FindInvalidUtf8(std::string_view text);

}  // namespace lkv
