#include "text/chat_turn.h"

#include <gtest/gtest.h>

#include <string>

#include "testing/test_paths.h"

namespace lkv {
namespace {

TEST(TokenizeNextTurnTest, HoldsWhatFollowsTheReplyWhateverItWas) {
  const auto tokenizer = Tokenizer::Open(TestModelPath());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  for (const char* reply : {"Hi!", "one", "two", ""}) {
    const std::vector<ChatMessage> chat = {{"system", "Be brief."},
                                           {"user", "Hello."},
                                           {"assistant", reply},
                                           {"user", "one or two?"}};
    const auto turn = TokenizeNextTurn(**tokenizer, chat);
    ASSERT_TRUE(turn.ok()) << turn.status().message();
    std::string text;
    for (const int32_t token : *turn) {
      text += (*tokenizer)->TokenBytes(token, Tokenizer::Special::kParse);
    }
    EXPECT_EQ(text,
              "<|im_end|>\n<|im_start|>user\none or two?<|im_end|>\n"
              "<|im_start|>assistant\n");
  }
}

}  // namespace
}  // namespace lkv
