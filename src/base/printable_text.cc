#include "base/printable_text.h"

#include "base/utf8.h"

namespace lkv {
namespace {

constexpr size_t kLongestQuote = 60;

bool IsControl(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  // U+0080-009F, which some terminals obey like escape sequences.
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

// Appends what stands at the front of `text` and removes it there.
void MoveFront(std::string_view* text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  const Utf8Front front = ReadUtf8Front(*text);
  const std::string_view bytes = text->substr(0, front.n_bytes);
  text->remove_prefix(front.n_bytes);
  if (front.kind == Utf8Front::kCharacter && !IsControl(bytes)) {
    *out += bytes;
    return;
  }
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    *out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
  }
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) MoveFront(&text, &out);
  return out;
}

std::string Quoted(std::string_view text) {
  std::string out = "'";
  while (!text.empty() && out.size() <= kLongestQuote) MoveFront(&text, &out);
  return out + (text.empty() ? "'" : "...'");
}

}  // namespace lkv
