#include "text/chat_prompt.h"

#include <gtest/gtest.h>

#include <array>

#include "llama.h"

namespace lkv {
namespace {

std::vector<std::string> TextsOf(const ChatPrompt& prompt,
                                 const std::vector<ByteRange>& ranges) {
  std::vector<std::string> texts;
  for (ByteRange r : ranges) {
    texts.push_back(prompt.text.substr(r.begin, r.end - r.begin));
  }
  return texts;
}

ChatPrompt MustRender(const std::string& chat_template,
                      const std::vector<ChatMessage>& messages) {
  Result<ChatPrompt> prompt =
      RenderChat(chat_template, messages, Tokenizer::Reply::kBegin);
  EXPECT_TRUE(prompt.ok()) << prompt.status().message();
  return std::move(*prompt);
}

std::vector<std::string> BuiltinTemplates() {
  std::array<const char*, 256> names = {};
  int32_t n = llama_chat_builtin_templates(names.data(), names.size());
  return {names.begin(), names.begin() + n};
}

class BuiltinTemplateTest : public ::testing::TestWithParam<std::string> {};

TEST_P(BuiltinTemplateTest, EveryContentIsFound) {
  // Words of the markers themselves as contents: a plain search would err.
  const ChatPrompt prompt = MustRender(GetParam(), {{"system", "system"},
                                                    {"user", "user"},
                                                    {"assistant", "assistant"},
                                                    {"user", "1"}});
  std::vector<std::string> evictable = TextsOf(prompt, prompt.evictable);
  EXPECT_EQ(evictable, (std::vector<std::string>{"user", "assistant", "1"}))
      << prompt.text;
  for (size_t i = 1; i < prompt.contents.size(); ++i) {
    EXPECT_LE(prompt.contents[i - 1].end, prompt.contents[i].begin);
  }
}

INSTANTIATE_TEST_SUITE_P(Builtin, BuiltinTemplateTest,
                         ::testing::ValuesIn(BuiltinTemplates()),
                         [](const auto& info) {
                           std::string name;
                           for (char c : info.param) {
                             name += std::isalnum(c) ? c : '_';
                           }
                           return name;
                         });

TEST(ChatPromptTest, TrimmedContentsAreFound) {
  const ChatPrompt prompt =
      MustRender("gemma", {{"user", "  spaces around \n"}});
  EXPECT_EQ(TextsOf(prompt, prompt.evictable),
            (std::vector<std::string>{"spaces around"}));
}

TEST(ChatPromptTest, ControlBytesInContentsDoNotConfuse) {
  const std::string content =
      "\x01"
      "0\x02 and \x01";
  const ChatPrompt prompt = MustRender("chatml", {{"user", content}});
  EXPECT_EQ(TextsOf(prompt, prompt.evictable),
            (std::vector<std::string>{content}));
}

TEST(ChatPromptTest, AnEmptyMessageIsAnEmptyRange) {
  const ChatPrompt prompt =
      MustRender("chatml", {{"user", ""}, {"assistant", "x"}});
  EXPECT_EQ(prompt.text,
            "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\nx<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(TextsOf(prompt, prompt.evictable), (std::vector<std::string>{"x"}));
}

TEST(ChatPromptTest, AnUnknownTemplateIsRefused) {
  const std::vector<ChatMessage> messages = {{"user", "x"}};
  Result<ChatPrompt> prompt =
      RenderChat("{{ sorcery }}", messages, Tokenizer::Reply::kOmit);
  ASSERT_FALSE(prompt.ok());
  EXPECT_EQ(prompt.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lkv
