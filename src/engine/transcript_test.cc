#include "engine/transcript.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

Transcript Said() {
  Transcript said;
  said.system = "Be \"brief\".\n";
  said.messages = {{"user", "\xff\xfe\x01 and {braces}"},
                   {"assistant", ""},
                   {"user", std::string("nul\0here", 8)}};
  said.uncached = {7, 0, -1, 49151};
  said.turns = {{100, 3}, {0, 7}};
  return said;
}

TEST(TranscriptTest, ComesBackWhateverWasSaid) {
  const Transcript said = Said();
  const auto read = ReadTranscript(WriteTranscript(said));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->system, said.system);
  ASSERT_EQ(read->messages.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read->messages[i].role, said.messages[i].role);
    EXPECT_EQ(read->messages[i].content, said.messages[i].content);
  }
  EXPECT_EQ(read->uncached, said.uncached);
  ASSERT_EQ(read->turns.size(), 2u);
  EXPECT_EQ(read->turns[0].n_read, 100u);
  EXPECT_EQ(read->turns[1].n_generated, 7u);
}

TEST(TranscriptTest, AnythingElseIsNone) {
  const std::string whole = WriteTranscript(Said());
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(ReadTranscript(whole.substr(0, n)).has_value()) << n;
  }
  EXPECT_FALSE(ReadTranscript(whole + '\0').has_value());
  EXPECT_FALSE(ReadTranscript("{}").has_value());
  std::string other = whole;
  other[5] ^= 1;
  EXPECT_FALSE(ReadTranscript(other).has_value());
}

}  // namespace
}  // namespace lkv
