#include "cli/transcript.h"

#include <gtest/gtest.h>

namespace lkv::cli {
namespace {

TEST(TranscriptTest, ComesBackWhateverWasSaid) {
  Transcript said;
  said.system = "Be \"brief\".\n";
  said.messages = {{"user", "ä\xff\xfe\x01 and {json}"},
                   {"assistant", ""},
                   {"user", std::string("nul\0here", 8)}};
  said.uncached = {7, 0, 49151};
  const auto read = ReadTranscript(WriteTranscript(said));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->system, said.system);
  ASSERT_EQ(read->messages.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read->messages[i].role, said.messages[i].role);
    EXPECT_EQ(read->messages[i].content, said.messages[i].content);
  }
  EXPECT_EQ(read->uncached, said.uncached);
}

TEST(TranscriptTest, AnythingElseIsNone) {
  for (const char* text :
       {"", "{}", "[]", "null", "{\"system\": 3}", "{\"system\": \"\"",
        "{\"system\":\"\",\"messages\":[{\"role\":1}],\"uncached\":[]}",
        "{\"system\":\"\",\"messages\":[],\"uncached\":[\"x\"]}"}) {
    EXPECT_FALSE(ReadTranscript(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace lkv::cli
