#include "text/text_piece.h"

#include <gtest/gtest.h>

#include <string>

namespace lkv {
namespace {

constexpr size_t kNoLimit = 1000;

size_t EndAtBytes(std::string_view text, size_t n_bytes) {
  return FirstPieceEnd(text,
                       {.bytes_max = n_bytes, .run_characters_max = kNoLimit});
}
size_t EndAtRun(std::string_view text, size_t n_characters) {
  return FirstPieceEnd(
      text, {.bytes_max = kNoLimit, .run_characters_max = n_characters});
}

TEST(FirstPieceEndTest, ShortTextIsOnePiece) {
  EXPECT_EQ(EndAtBytes("", 8), 0u);
  EXPECT_EQ(EndAtBytes("12345678", 8), 8u);
}

TEST(FirstPieceEndTest, CutsAfterTheLastLineEndThatFits) {
  EXPECT_EQ(EndAtBytes("a\nb\ncdefgh", 8), 4u);
  EXPECT_EQ(EndAtBytes("1234567\n9", 8), 8u);
  EXPECT_EQ(EndAtBytes("12345678\n", 8), 8u) << "it does not fit";
}

TEST(FirstPieceEndTest, CutsNoCharacterInTwo) {
  EXPECT_EQ(EndAtBytes("1234567é", 8), 7u);
  EXPECT_EQ(EndAtBytes("12345🦙", 8), 5u);
  EXPECT_EQ(EndAtBytes("1234🦙", 8), 8u) << "fits exactly";
  EXPECT_EQ(EndAtBytes("123456789", 8), 8u);
}

TEST(FirstPieceEndTest, InvalidBytesStillGiveAPiece) {
  EXPECT_EQ(EndAtBytes(std::string(20, '\x80'), 8), 5u);
}

TEST(FirstPieceEndTest, CutsRunsOfOneKind) {
  EXPECT_EQ(EndAtRun("abc 123 ?!. \t", 3), 13u) << "all runs are short";
  EXPECT_EQ(EndAtRun("abcd", 3), 3u);
  EXPECT_EQ(EndAtRun("ab 12345", 3), 6u);
  EXPECT_EQ(EndAtRun("ab \n\t x", 3), 5u);
  EXPECT_EQ(EndAtRun("a?!?!", 3), 4u);
}

TEST(FirstPieceEndTest, ARunCountsCharacters) {
  EXPECT_EQ(EndAtRun("éééé", 4), 8u);
  EXPECT_EQ(EndAtRun("ééééé", 4), 8u);
  EXPECT_EQ(EndAtRun(std::string(20, '\x80'), 4), 7u)
      << "bytes that are no UTF-8 count too";
}

TEST(TextPieceTest, ALongTextIsCutInFrontOfASpaceBetweenLetters) {
  const PieceLimits limits = {
      .bytes_max = 100, .run_characters_max = 100, .bytes_wanted = 5};
  EXPECT_EQ(FirstPieceEnd("ab cd ef gh", limits), 5u);
  EXPECT_EQ(FirstPieceEnd("abcd  e, 1 f g h", limits), 12u);
  EXPECT_EQ(FirstPieceEnd("abcd\xc3\xa9 b", limits), 8u);
  EXPECT_EQ(FirstPieceEnd("ab c", limits), 4u);
  EXPECT_EQ(FirstPieceEnd("abcdef ", limits), 7u);
  EXPECT_EQ(FirstPieceEnd("", limits), 0u);
  EXPECT_EQ(FirstPieceEnd("ab cd ef gh",
                          {.bytes_max = 100, .run_characters_max = 100}),
            11u);
}

}  // namespace
}  // namespace lkv
