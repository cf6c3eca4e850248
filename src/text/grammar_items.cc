#include "text/grammar_items.h"

#include <algorithm>

namespace lkv {
namespace {

// The end of a literal or class: behind its first unescaped `close`.
size_t EndOfQuoted(std::string_view text, size_t at, char close) {
  ++at;
  while (at < text.size() && text[at] != close) at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

}  // namespace

bool IsGrammarNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         (c >= '0' && c <= '9');
}

size_t EndOfGrammarItem(std::string_view text, size_t at) {
  switch (text[at]) {
    case '#':
      return std::min(text.find_first_of("\r\n", at), text.size());
    case '"':
      return EndOfQuoted(text, at, '"');
    case '[':
      return EndOfQuoted(text, at, ']');
    case '<': {
      const size_t close = text.find('>', at);
      return close == text.npos ? text.size() : close + 1;
    }
    default:
      break;
  }
  size_t end = at;
  while (end < text.size() && IsGrammarNameCharacter(text[end])) ++end;
  return std::max(end, at + 1);
}

}  // namespace lkv
