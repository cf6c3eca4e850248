#include "text/text_piece.h"

#include <algorithm>
#include <cstdint>

namespace lkv {
namespace {

enum class Kind { kLetter, kDigit, kSpace, kOther };

Kind KindOf(uint8_t byte) {
  if (byte == ' ' || (byte >= '\t' && byte <= '\r')) return Kind::kSpace;
  if (byte >= '0' && byte <= '9') return Kind::kDigit;
  const uint8_t lower = byte | 0x20;
  if (byte >= 0x80 || (lower >= 'a' && lower <= 'z')) return Kind::kLetter;
  return Kind::kOther;
}

bool ContinuesCharacter(char byte) {
  return (static_cast<uint8_t>(byte) & 0xc0) == 0x80;
}

bool IsLetter(char byte) {
  const uint8_t lower = static_cast<uint8_t>(byte) | 0x20;
  return lower >= 'a' && lower <= 'z';
}

// Whether a space between two ASCII letters stands at i.
bool IsWordEnd(std::string_view text, size_t i) {
  return text[i] == ' ' && i > 0 && i + 1 < text.size() &&
         IsLetter(text[i - 1]) && IsLetter(text[i + 1]);
}

// Where the first word at or behind bytes_wanted ends or the first run exceeds
// its limit, whichever comes first; or the size, or bytes_max where that is
// less. One pass, which reads at most one byte behind this end.
size_t EndAtWordOrLongRun(std::string_view text, PieceLimits limits) {
  const size_t n_bytes = std::min(text.size(), limits.bytes_max);
  size_t n_characters = 0;
  Kind run = Kind::kOther;
  for (size_t i = 0; i < n_bytes; ++i) {
    // A byte too many of this sort is no UTF-8 and counts as a character.
    if (i > 0 && ContinuesCharacter(text[i]) &&
        !(i >= 4 && std::all_of(&text[i - 4], &text[i], ContinuesCharacter))) {
      continue;
    }
    if (i >= limits.bytes_wanted && IsWordEnd(text, i)) return i;
    const Kind kind = KindOf(static_cast<uint8_t>(text[i]));
    n_characters = kind == run ? n_characters + 1 : 1;
    run = kind;
    if (n_characters > limits.run_characters_max) return i;
  }
  return n_bytes;
}

}  // namespace

size_t FirstPieceEnd(std::string_view text, PieceLimits limits) {
  const size_t first_end = EndAtWordOrLongRun(text, limits);
  if (first_end < limits.bytes_max || text.size() <= limits.bytes_max) {
    return first_end;
  }
  const size_t line_end = text.rfind('\n', limits.bytes_max - 1);
  if (line_end != text.npos) return line_end + 1;
  size_t end = limits.bytes_max;
  // A character has at most 3 such bytes; more are no UTF-8.
  while (end > limits.bytes_max - 3 && ContinuesCharacter(text[end])) --end;
  return end;
}

}  // namespace lkv
