#include "text/utf8_stream.h"

#include <gtest/gtest.h>

#include <random>

namespace lkv {
namespace {

const std::string kReplacement = "\xef\xbf\xbd";

// All bytes in portions of n.
std::string StreamInPortions(const std::string& bytes, size_t n) {
  Utf8Stream stream;
  std::string shown;
  for (size_t i = 0; i < bytes.size(); i += n) {
    shown += stream.Push(bytes.substr(i, n));
  }
  return shown + stream.Finish();
}

TEST(Utf8StreamTest, CharactersCutAnywhereComeOutWhole) {
  const std::string text = "aß€𝄞 日本語 🦙 \xf4\x8f\xbf\xbf";
  for (size_t n = 1; n <= text.size(); ++n) {
    EXPECT_EQ(StreamInPortions(text, n), text) << n;
  }
}

TEST(Utf8StreamTest, AnUnfinishedCharacterIsHeldBack) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("x\xf0\x9f"), "x");
  EXPECT_EQ(stream.Push("\xa6"), "");
  EXPECT_EQ(stream.Push("\x99y"), "🦙y");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(Utf8StreamTest, FinishShowsThatACharacterIsMissingItsEnd) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("\xe2\x82"), "");
  EXPECT_EQ(stream.Finish(), kReplacement);
  EXPECT_EQ(stream.Finish(), "");
}

// The examples of the Unicode standard, 3.9, table 3-8 and following.
TEST(Utf8StreamTest, InvalidBytesAreReplacedByLongestRuns) {
  const std::string r = kReplacement;
  const std::pair<std::string, std::string> cases[] = {
      {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41",
       r + r + r + r + r + r + r + r + "A"},
      {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41",
       r + r + r + r + r + r + r + r + "A"},
      {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42",
       r + r + r + r + r + "A" + r + r + "B"},
      {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", r + r + r + r + "A"},
  };
  for (const auto& [bytes, expected] : cases) {
    for (size_t n = 1; n <= bytes.size(); ++n) {
      EXPECT_EQ(StreamInPortions(bytes, n), expected);
    }
  }
}

TEST(Utf8StreamTest, PortionsNeverChangeWhatRandomBytesGive) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    const std::string whole = StreamInPortions(bytes, 1000);
    for (size_t n = 1; n < 5; ++n) {
      ASSERT_EQ(StreamInPortions(bytes, n), whole);
    }
    ASSERT_EQ(StreamInPortions(whole, 1), whole) << "is valid UTF-8";
  }
}

}  // namespace
}  // namespace lkv
