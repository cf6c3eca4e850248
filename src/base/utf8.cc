#include "base/utf8.h"

#include <cstdint>

namespace lkv {

Utf8Front ReadUtf8Front(std::string_view bytes) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8Front::kCharacter, 1};
  if (lead < 0xc2 || lead > 0xf4) return {Utf8Front::kInvalid, 1};
  const size_t n_bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  for (size_t i = 1; i < n_bytes; ++i) {
    if (i == bytes.size()) return {Utf8Front::kUnfinished, i};
    uint8_t low = 0x80;
    uint8_t high = 0xbf;
    if (i == 1) {
      if (lead == 0xe0) low = 0xa0;
      if (lead == 0xed) high = 0x9f;
      if (lead == 0xf0) low = 0x90;
      if (lead == 0xf4) high = 0x8f;
    }
    if (byte(i) < low || byte(i) > high) return {Utf8Front::kInvalid, i};
  }
  return {Utf8Front::kCharacter, n_bytes};
}

size_t FindInvalidUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Front front = ReadUtf8Front(text.substr(at));
    if (front.kind != Utf8Front::kCharacter) return at;
    at += front.n_bytes;
  }
  return std::string_view::npos;
}

}  // namespace lkv
