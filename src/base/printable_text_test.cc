#include "base/printable_text.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

TEST(PrintableTest, ControlCharactersAndStrayBytesAreSpelledOut) {
  EXPECT_EQ(Printable("a\nb\x1b[2J\x7f\xff"), "a\\x0ab\\x1b[2J\\x7f\\xff");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b") << "CSI in one character";
  EXPECT_EQ(Printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(Printable("\xe2\x82"), "\\xe2\\x82") << "half a character";
}

TEST(PrintableTest, EverythingElseStaysAsItIs) {
  const std::string text =
      "/tmp/gr\xc3\xb6\xc3\x9f"
      "e \xe2\x82\xac 'a\\x'";
  EXPECT_EQ(Printable(text), text);
}

TEST(QuotedTest, KeepsAMessageOnOneLine) {
  EXPECT_EQ(Quoted("a\nb\x1b\xff"), "'a\\x0ab\\x1b\\xff'");
}

TEST(QuotedTest, CutsLongTextBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\xe2\x82\xac";
  const std::string quoted = Quoted(text);
  EXPECT_LE(quoted.size(), 70u);
  EXPECT_TRUE(quoted.ends_with("\xe2\x82\xac...'")) << quoted;
  EXPECT_EQ(Quoted(std::string(60, 'a')), "'" + std::string(60, 'a') + "'");
}

}  // namespace
}  // namespace lkv
