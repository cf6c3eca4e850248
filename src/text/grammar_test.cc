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
  Status status = CheckGrammar(Vocab(), grammar, "my.gbnf");
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return std::string(status.message());
}

void ExpectMessages(
    std::initializer_list<std::pair<std::string, std::string>> cases) {
  for (const auto& [grammar, expected] : cases) {
    EXPECT_NE(Message(grammar).find(expected), std::string::npos)
        << grammar.substr(0, 200) << " -> " << Message(grammar);
  }
}

TEST(CheckGrammarTest, AcceptsSoundGrammars) {
  for (const std::string grammar : {
           "root ::= \"yes\" | \"no\"",
           "# comment\n\n  root ::= item+ \nitem ::= [a-z]{2,5} \" \"?\n",
           "root ::= (\"(\" [^\"\\\\]* \")\")* # { [ \" in a comment",
           "root ::= \"a\"{3} [\\]{]{2,} \"\\\"{\"",
           "root ::= \"a\"{2000} \"b\"{0,2000} \"c\"{2000,}",
           "root ::= \"a{5,2}\" [{5,2}] # {5,2}",
           "root ::= <|im_end|> !<|im_start|>",
           "root ::= sum\nsum ::= (factor \"+\")* factor\n"
           "factor ::= [0-9]+ | \"(\" sum \")\"",
           "root ::= \"x\" root | ",
           "root ::= ([a-z]? \" \"?){0,16}",
       }) {
    EXPECT_EQ(Message(grammar), "") << grammar;
  }
}

TEST(CheckGrammarTest, NamesFileLineProblemAndRemedy) {
  ExpectMessages({
      {"root = \"x\"", "my.gbnf:1: '=' stands where '::=' belongs; "},
      {"root ::= \"x\"\nother ::= \"y\n", "my.gbnf:2: a literal or character"},
      {"root ::= (\"x\"\n  \"y\" ;", "my.gbnf:2: ';' stands where ')' belongs"},
      {"root ::= (\"x\"", "the end of the text stands where ')' belongs"},
      {"root ::= \"x\" )", "')' stands where the end of the rule belongs"},
      {"root ::= *", "nothing to repeat"},
      {"root ::= \"\"*", "nothing to repeat"},
      {"root ::= \"x\"{y}", "'y}' stands where a number belongs"},
      {"root ::= \"\\q\"", "'\\q' is no escape"},
      {"root ::= <[99999999999999999999]>", "number is too large"},
      {"root ::= <no such token>", "is not one token"},
      {"\n\nroot ::= nowhere", "my.gbnf:3: rule 'nowhere' is used but not"},
      {"other ::= \"x\"", "no rule 'root'"},
      {"", "no rule 'root'"},
      {"# only a comment", "no rule 'root'"},
      {std::string("root ::=\n\"a\0b\"", 15), "my.gbnf:2: contains a NUL byte"},
      {"root ::=\n\"caf\xe9\"", "my.gbnf:2: not UTF-8"},
  });
}

TEST(CheckGrammarTest, TellsLeftRecursionFromAnEmptyRepetition) {
  ExpectMessages({
      {"root ::= \"x\" list\nlist ::= list \"y\" | \"y\"",
       "my.gbnf:2: rule 'list' begins with itself"},
      {"root ::= a\na ::= b \"x\"\nb ::= a | \"y\"", "begins with itself"},
      {"root ::= \"x\"\nitems ::= (\"a\"?)*",
       "my.gbnf:2: rule 'items' repeats without end what may be empty"},
      {"root ::= (\"a\"*)+", "repeats without end what may be empty"},
      {"root ::= (\"\")*", "repeats without end what may be empty"},
  });
}

std::string Name(int i) {
  std::string name = "a";
  return name += std::to_string(i);
}

// libllama's own search misses it and then fills all memory.
TEST(CheckGrammarTest, SeesLeftRecursionBehindWhatIsEmptyThroughOtherRules) {
  ExpectMessages({
      {"root ::= a root \"x\" | \"z\"\na ::= b\nb ::= \"y\"?",
       "rule 'root' repeats without end what may be empty"},
      {"root ::= a c \"x\" | \"z\"\nc ::= root\na ::= b\nb ::= \"y\" |",
       "begins with itself"},
  });
}

TEST(CheckGrammarTest, LimitsWhatAHostileTextCosts) {
  ExpectMessages({
      {"root ::= " + std::string(1 << 17, '('), "64 KiB"},
      {"root ::= " + std::string(50000, '('), "nest deeper"},
      {"root ::= \"a\"{5,2}", "repeats at least 5 and at most 2 times"},
      {"root ::= (\"a\"?){0,17}",
       "rule 'root' repeats more than 16 times what may be empty"},
      {"root ::= ((\"a\"{1,1000}){1,1000}){1,1000}", "more than 2000"},
  });
  // 2^40 paths for libllama's search for left recursion.
  std::string doubling = "root ::= a0\n";
  // 2^40 ways to begin, which it would follow at every character.
  std::string skipping = "root ::= a0\n";
  for (int i = 0; i < 40; ++i) {
    const std::string rule = Name(i) + " ::= ";
    const std::string next = Name(i + 1);
    doubling += rule + next + " | " + next + "\n";
    skipping += rule + next + " " + next + "\n";
  }
  EXPECT_NE(Message(doubling + "a40 ::= \"x\"").find("more than 1024 ways"),
            std::string::npos);
  EXPECT_NE(Message(skipping + "a40 ::= \"x\"?").find("more than 1024 ways"),
            std::string::npos);
  EXPECT_NE(Message("root ::= x{0,1000}\nx ::= y{0,1000}\ny ::= \"y\"{0,9}")
                .find("more than 16 times"),
            std::string::npos);
}

}  // namespace
}  // namespace lkv
