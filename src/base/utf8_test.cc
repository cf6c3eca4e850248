#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace lkv {
namespace {

constexpr size_t kNone = std::string_view::npos;

// UTF-8 of a code point by the bit layout alone, whether or not it is legal.
std::string Encode(uint32_t code, size_t n_bytes) {
  if (n_bytes == 1) return std::string(1, static_cast<char>(code));
  std::string bytes(n_bytes, '\0');
  for (size_t i = n_bytes - 1; i > 0; --i, code >>= 6) {
    bytes[i] = static_cast<char>(0x80 | (code & 0x3f));
  }
  bytes[0] = static_cast<char>((0xf00 >> n_bytes & 0xff) | code);
  return bytes;
}

TEST(Utf8Test, EveryCodePointIsLegalInItsShortestFormOnly) {
  for (uint32_t code = 0; code < 0x110000 + 0x1000; ++code) {
    const size_t shortest = code < 0x80      ? 1
                            : code < 0x800   ? 2
                            : code < 0x10000 ? 3
                                             : 4;
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    for (size_t n = shortest; n <= 4; ++n) {
      const bool legal = n == shortest && !surrogate && code <= 0x10ffff;
      ASSERT_EQ(FindInvalidUtf8(Encode(code, n)) == kNone, legal)
          << code << " in " << n << " bytes";
    }
  }
}

TEST(Utf8Test, TheFirstBadByteIsNamed) {
  EXPECT_EQ(FindInvalidUtf8(""), kNone);
  EXPECT_EQ(FindInvalidUtf8("caf\xc3\xa9"), kNone);
  EXPECT_EQ(FindInvalidUtf8("caf\xe9 "), 3u);
  EXPECT_EQ(FindInvalidUtf8("ab\x80"), 2u);
  EXPECT_EQ(FindInvalidUtf8("ab\xe2\x82"), 2u) << "unfinished";
}

TEST(Utf8Test, ARunThatBeganLikeACharacterIsOneFront) {
  const Utf8Front invalid = ReadUtf8Front("\xe2\x82x");
  EXPECT_EQ(invalid.kind, Utf8Front::kInvalid);
  EXPECT_EQ(invalid.n_bytes, 2u);
  const Utf8Front unfinished = ReadUtf8Front("\xe2\x82");
  EXPECT_EQ(unfinished.kind, Utf8Front::kUnfinished);
  EXPECT_EQ(unfinished.n_bytes, 2u);
}

}  // namespace
}  // namespace lkv
