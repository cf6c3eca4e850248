#include "text/grammar_items.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lkv {
namespace {

std::vector<std::string> Items(const std::string& text) {
  std::vector<std::string> items;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    end = EndOfGrammarItem(text, at);
    if (text[at] != ' ') items.push_back(text.substr(at, end - at));
  }
  return items;
}

TEST(EndOfGrammarItemTest, SplitsATextIntoItems) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(Items(R"(a-1::= "b\"" [^\]"] !<|x|>b_)"),
            (Strings{"a-1", ":", ":", "=", R"("b\"")", R"([^\]"])", "!",
                     "<|x|>", "b", "_"}));
  EXPECT_EQ(Items("# a \"b\nc"), (Strings{"# a \"b", "\n", "c"}));
}

TEST(EndOfGrammarItemTest, WhatIsNotClosedEndsWithTheText) {
  for (const std::string item : {"\"ab", "[ab", "<ab", "# ab", "\"ab\\", "["}) {
    EXPECT_EQ(EndOfGrammarItem(item, 0), item.size()) << item;
  }
}

}  // namespace
}  // namespace lkv
