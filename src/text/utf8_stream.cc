#include "text/utf8_stream.h"

#include <cstdint>
#include <utility>

namespace lkv {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// What stands at the front of some bytes.
struct Front {
  enum Kind { kCharacter, kUnfinished, kInvalid } kind;
  size_t n_bytes;
};

// Requires bytes not empty. The table is that of well-formed sequences in the
// Unicode standard (3-7): no overlong forms, surrogates or values above
// U+10FFFF.
Front ReadFront(std::string_view bytes) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Front::kCharacter, 1};
  if (lead < 0xc2 || lead > 0xf4) return {Front::kInvalid, 1};
  const size_t n_bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  for (size_t i = 1; i < n_bytes; ++i) {
    if (i == bytes.size()) return {Front::kUnfinished, i};
    uint8_t low = 0x80;
    uint8_t high = 0xbf;
    if (i == 1) {
      if (lead == 0xe0) low = 0xa0;
      if (lead == 0xed) high = 0x9f;
      if (lead == 0xf0) low = 0x90;
      if (lead == 0xf4) high = 0x8f;
    }
    if (byte(i) < low || byte(i) > high) return {Front::kInvalid, i};
  }
  return {Front::kCharacter, n_bytes};
}

}  // namespace

std::string Utf8Stream::Push(std::string_view bytes) {
  pending_ += bytes;
  std::string_view rest = pending_;
  std::string shown;
  while (!rest.empty()) {
    Front front = ReadFront(rest);
    if (front.kind == Front::kUnfinished) break;
    shown += front.kind == Front::kCharacter ? rest.substr(0, front.n_bytes)
                                             : kReplacement;
    rest.remove_prefix(front.n_bytes);
  }
  pending_ = std::string(rest);
  return shown;
}

std::string Utf8Stream::Finish() {
  return std::exchange(pending_, {}).empty() ? std::string()
                                             : std::string(kReplacement);
}

}  // namespace lkv
