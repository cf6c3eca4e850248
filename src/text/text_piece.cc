#include "text/text_piece.h"

#include <cstdint>

namespace lkv {

size_t FirstPieceEnd(std::string_view text, size_t n_bytes_max) {
  if (text.size() <= n_bytes_max) return text.size();
  const size_t line_end = text.rfind('\n', n_bytes_max - 1);
  if (line_end != text.npos) return line_end + 1;
  size_t end = n_bytes_max;
  auto continues_character = [&](size_t i) {
    return (static_cast<uint8_t>(text[i]) & 0xc0) == 0x80;
  };
  // A character has at most 3 such bytes; more are no UTF-8.
  while (end > n_bytes_max - 3 && continues_character(end)) --end;
  return end;
}

}  // namespace lkv
