// How often a part stands in a text.
#pragma once

#include <cstddef>
#include <string>

namespace lkv {

// Overlapping ones count each.
inline size_t CountText(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos;
       at = text.find(part, at + 1)) {
    ++n;
  }
  return n;
}

}  // namespace lkv
