#include "text/text_piece.h"

#include <gtest/gtest.h>

#include <string>

namespace lkv {
namespace {

TEST(FirstPieceEndTest, ShortTextIsOnePiece) {
  EXPECT_EQ(FirstPieceEnd("", 8), 0u);
  EXPECT_EQ(FirstPieceEnd("12345678", 8), 8u);
}

TEST(FirstPieceEndTest, CutsAfterTheLastLineEndThatFits) {
  EXPECT_EQ(FirstPieceEnd("a\nb\ncdefgh", 8), 4u);
  EXPECT_EQ(FirstPieceEnd("1234567\n9", 8), 8u);
  EXPECT_EQ(FirstPieceEnd("12345678\n", 8), 8u) << "it does not fit";
}

TEST(FirstPieceEndTest, CutsNoCharacterInTwo) {
  EXPECT_EQ(FirstPieceEnd("1234567é", 8), 7u);
  EXPECT_EQ(FirstPieceEnd("12345🦙", 8), 5u);
  EXPECT_EQ(FirstPieceEnd("1234🦙", 8), 8u) << "fits exactly";
  EXPECT_EQ(FirstPieceEnd("123456789", 8), 8u);
}

TEST(FirstPieceEndTest, InvalidBytesStillGiveAPiece) {
  EXPECT_EQ(FirstPieceEnd(std::string(20, '\x80'), 8), 5u);
}

}  // namespace
}  // namespace lkv
