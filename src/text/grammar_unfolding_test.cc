#include "text/grammar_unfolding.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

std::string What(const std::string& grammar) {
  const auto problem = FindCostlyUnfolding(grammar);
  return problem ? problem->what + "; " + problem->remedy : "";
}

std::string Repeat(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

TEST(FindCostlyUnfoldingTest, RangesMustRunUpwards) {
  for (const std::string range :
       {"{5,2}", "{2,0}", "{ 5 , 2 }", "{5,# {\n2}", "{\n5,\r\n2\t}"}) {
    for (const std::string item :
         {"\"a\"", "[a]", "(\"a\")", "x ", ".", "<[7]>", "\"}\" # {1}\r"}) {
      EXPECT_NE(What("root ::= " + item + range).find("put the smaller number"),
                std::string::npos)
          << item << range;
    }
  }
  EXPECT_EQ(What("root ::= \"a\"{2,5} \"b\"{0,0} \"c\"{3} \"d\"{4,}"), "");
}

TEST(FindCostlyUnfoldingTest, HasTheOffsetOfTheRepetition) {
  const auto problem = FindCostlyUnfolding("root ::= \"{9,1}\"\n  \"a\"{9,1}");
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->offset, 22u);
}

TEST(FindCostlyUnfoldingTest, LiteralsClassesTokensAndCommentsAreSkipped) {
  for (const std::string grammar :
       {"root ::= \"{5,2}\"", "root ::= \"\\\"{5,2}\"", "root ::= [{5,2}]",
        "root ::= [\\]{5,2}]", "root ::= # {5,2}", "root ::= # {5,2}\r# {5,2}",
        "root ::= <{5,2}>"}) {
    EXPECT_EQ(What(grammar), "") << grammar;
  }
  EXPECT_NE(What("root ::= # comment\r\"a\"{5,2}"), "");
  EXPECT_NE(What("root ::= <\"> \"a\"{5,2} <\">"), "");
}

// libllama would drop the upper end without a word.
TEST(FindCostlyUnfoldingTest, RefusesMoreRepetitionsThanLibllamaCounts) {
  for (const std::string range :
       {"{2001}", "{1,100000000}", "{2001,}", "{99999999999999999999999999}",
        "{1,99999999999999999999999999}"}) {
    EXPECT_NE(What("root ::= \"a\"" + range).find("more than 2000 times"),
              std::string::npos)
        << range;
  }
  EXPECT_EQ(What("root ::= \"a\"{1,2000}"), "");
}

TEST(FindCostlyUnfoldingTest, CountsEveryWayInWhichCopiesAddUp) {
  const std::string long_item = "\"" + std::string(30000, 'x') + "\"";
  for (const std::string& grammar : {
           long_item + "{2000}",                 // 60 M elements
           long_item + " {0,2000}",              // behind a space
           long_item + std::string(30000, '+'),  // 900 M
           Repeat("\"" + std::string(500, 'x') + "\"{40}{50}", 100),  // 100 M
           Repeat("[a]{0,2000}", 5000),  // 10 M rules
       }) {
    EXPECT_NE(What("root ::= " + grammar).find("unfold to more than"),
              std::string::npos)
        << grammar.substr(0, 40);
  }
  EXPECT_EQ(What("root ::= " + Repeat("[^\"\\\\]{0,2000}", 50)), "");
}

TEST(FindCostlyUnfoldingTest, NamesOfRulesAreShort) {
  EXPECT_NE(What(std::string(30000, 'a') + " ::= \"x\"").find("shorten it"),
            std::string::npos);
}

}  // namespace
}  // namespace lkv
