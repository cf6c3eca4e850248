#include "text/grammar.h"

#include <gtest/gtest.h>

#include "testing/test_paths.h"
#include "text/tokenizer.h"

namespace lkv {
namespace {

const llama_vocab* Vocab() {
  static const auto tokenizer = *Tokenizer::Open(TestModelPath());
  return tokenizer->vocab();
}

std::string Message(const std::string& grammar) {
  Status status = CheckGrammar(Vocab(), grammar);
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(CheckGrammarTest, AcceptsSoundGrammars) {
  for (const std::string grammar : {
           "root ::= \"yes\" | \"no\"",
           "# comment\n\n  root ::= item+ \nitem ::= [a-z]{2,5} \" \"?\n",
           "root ::= (\"(\" [^\"\\\\]* \")\")* # { [ \" in a comment",
           "root ::= \"a\"{3} [\\]{]{2,} \"\\\"{\"",
       }) {
    EXPECT_EQ(Message(grammar), "") << grammar;
  }
}

TEST(CheckGrammarTest, NamesTheLineAndTheProblem) {
  const std::pair<std::string, std::string> cases[] = {
      {"root = \"x\"", "line 1: expecting ::="},
      {"root ::= \"x\"\nother ::= \"y\n", "line 2"},
      {"root ::= (\"x\"", "line 1: expecting ')'"},
      {"root ::= *", "line 1: expecting preceding item"},
      {"root ::= nowhere", "rule 'nowhere' is used but not defined"},
      {"other ::= \"x\"", "no rule 'root'"},
      {"", "no rule 'root'"},
      {"# only a comment", "no rule 'root'"},
      {std::string("root ::= \"a\0b\"", 15), "NUL byte"},
      {"root ::= \"x\"{99999}", "repetitions"},
  };
  for (const auto& [grammar, expected] : cases) {
    EXPECT_NE(Message(grammar).find(expected), std::string::npos)
        << grammar << " -> " << Message(grammar);
  }
}

TEST(CheckGrammarTest, LimitsWhatAHostileTextCosts) {
  EXPECT_NE(Message("root ::= " + std::string(1 << 17, '(')).find("64 KiB"),
            std::string::npos);
  EXPECT_NE(Message("root ::= " + std::string(50000, '(')).find("nests deeper"),
            std::string::npos);
  // 60,000 bytes times 2,000: a gigabyte of elements.
  EXPECT_NE(Message("root ::= \"" + std::string(60000, 'x') + "\"{2000}")
                .find("repeats too much"),
            std::string::npos);
  std::string many = "root ::=";
  for (int i = 0; i < 5000; ++i) many += " [a]{0,2000}";
  EXPECT_NE(Message(many).find("repeats too much"), std::string::npos);
}

}  // namespace
}  // namespace lkv
