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

// Where the first run longer than n_characters_max exceeds it; or the size.
size_t EndBeforeLongRun(std::string_view text, size_t n_characters_max) {
  size_t n_characters = 0;
  Kind run = Kind::kOther;
  for (size_t i = 0; i < text.size(); ++i) {
    // A byte too many of this sort is no UTF-8 and counts as a character.
    if (i > 0 && ContinuesCharacter(text[i]) &&
        !(i >= 4 && std::all_of(&text[i - 4], &text[i], ContinuesCharacter))) {
      continue;
    }
    const Kind kind = KindOf(static_cast<uint8_t>(text[i]));
    n_characters = kind == run ? n_characters + 1 : 1;
    run = kind;
    if (n_characters > n_characters_max) return i;
  }
  return text.size();
}

bool IsLetter(char byte) {
  const uint8_t lower = static_cast<uint8_t>(byte) | 0x20;
  return lower >= 'a' && lower <= 'z';
}

// The first space between two ASCII letters at or behind `from`; or the size.
size_t FindWordEnd(std::string_view text, size_t from) {
  for (size_t i = text.find(' ', std::max<size_t>(from, 1)); i < text.size();
       i = text.find(' ', i + 1)) {
    if (i + 1 < text.size() && IsLetter(text[i - 1]) && IsLetter(text[i + 1])) {
      return i;
    }
  }
  return text.size();
}

}  // namespace

size_t FirstPieceEnd(std::string_view text, PieceLimits limits) {
  const size_t word_end = FindWordEnd(text, limits.bytes_wanted);
  text = text.substr(0, word_end);
  const size_t run_end = EndBeforeLongRun(text.substr(0, limits.bytes_max),
                                          limits.run_characters_max);
  if (run_end < limits.bytes_max || text.size() <= limits.bytes_max) {
    return run_end;
  }
  const size_t line_end = text.rfind('\n', limits.bytes_max - 1);
  if (line_end != text.npos) return line_end + 1;
  size_t end = limits.bytes_max;
  // A character has at most 3 such bytes; more are no UTF-8.
  while (end > limits.bytes_max - 3 && ContinuesCharacter(text[end])) --end;
  return end;
}

}  // namespace lkv
