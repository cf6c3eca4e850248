#include "text/text_piece.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

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

TEST(TextPieceTest, AWordOrALongRunEndsAPieceWhicheverComesFirst) {
  const PieceLimits limits = {
      .bytes_max = 100, .run_characters_max = 6, .bytes_wanted = 4};
  EXPECT_EQ(FirstPieceEnd("abcde fghijklm", limits), 5u);
  EXPECT_EQ(FirstPieceEnd("abcdefghijk lm", limits), 6u);
}

// Text whose tail cannot be read: one page of a unit, then none.
class TextPieceWorkTest : public ::testing::TestWithParam<const char*> {
 protected:
  TextPieceWorkTest()
      : page_bytes_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        memory_(static_cast<char*>(mmap(nullptr, 2 * page_bytes_,
                                        PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~TextPieceWorkTest() override { munmap(memory_, 2 * page_bytes_); }

  const size_t page_bytes_;
  char* const memory_;
};

TEST_P(TextPieceWorkTest, APieceIsFoundWithoutALookAtTheRest) {
  ASSERT_NE(memory_, MAP_FAILED);
  const std::string unit = GetParam();
  for (size_t i = 0; i < page_bytes_; ++i) memory_[i] = unit[i % unit.size()];
  ASSERT_EQ(mprotect(memory_ + page_bytes_, page_bytes_, PROT_NONE), 0);
  const std::string_view text(memory_, 2 * page_bytes_);
  // The tokenizer's relation: a run may not be as long as a piece is wanted.
  EXPECT_LT(FirstPieceEnd(text, {.bytes_max = page_bytes_ - 1,
                                 .run_characters_max = page_bytes_ / 4,
                                 .bytes_wanted = page_bytes_ / 2}),
            page_bytes_);
}

INSTANTIATE_TEST_SUITE_P(Units, TextPieceWorkTest,
                         ::testing::Values(" ", "a", "1 ", "a, ", "ab ", "\n",
                                           "\xc3\xa9 ", "\x80"));

}  // namespace
}  // namespace lkv
