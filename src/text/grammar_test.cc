#include "text/grammar.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

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
      {"# a\nroot ::= \"a\" [a] |\n  aa | a\naa ::= \"a\"",
       "my.gbnf:3: rule 'a' is used but not defined"},
      {"root ::= (\"x\"{3 # } \"\n}\n 3)",
       "my.gbnf:3: rule '3' is used but not"},
      {"root ::= z\nz ::= y a", "my.gbnf:2: rule 'y' is used but not"},
      {"other ::= \"x\"", "no rule 'root'"},
      {"", "no rule 'root'"},
      {"# only a comment", "no rule 'root'"},
      {std::string("root ::=\n\"a\0b\"", 15), "my.gbnf:2: contains a NUL byte"},
      {"root ::=\n\"caf\xe9\"", "my.gbnf:2: not UTF-8"},
  });
}

TEST(CheckGrammarTest, RefusesWhatCanNeverMatchOrIsSaidTwice) {
  ExpectMessages({
      {"root ::= \"a\"\nx ::= <[49152]>",
       "my.gbnf:2: rule 'x' names token 49152, but the model has 49152; "},
      {"root ::= \"a\" | !<[99999]>", "names token 99999"},
      {"root ::= ( [a-z] | [z-a] )*",
       "rule 'root' has a range that ends before it begins ('z' to 'a'); "},
      {"root ::= [^\\xff-\\x01]", "(U+00FF to U+0001)"},
      {"root ::= \"a\"\n\nroot ::= \"b\"",
       "my.gbnf:3: rule 'root' was already defined in line 1; "},
      {"root ::= x\nx ::= \"a\"\nx ::= \"b\"", "my.gbnf:3: rule 'x'"},
  });
  EXPECT_EQ(Message("root ::= <[49151]> [a-a] [z] [a]"), "");
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

// The same item n times, `between` in between.
std::string Times(int n, const std::string& item, const std::string& between) {
  std::string all = item;
  for (int i = 1; i < n; ++i) all += between + item;
  return all;
}

// libllama would try all ways for each character of a token.
TEST(CheckGrammarTest, LimitsRepetitionsOfTheSameCharacter) {
  EXPECT_EQ(Message("root ::= (" + Times(4, "[a-z]", "|") + ")+ \"9\""), "");
  for (const std::string& grammar : {
           "root ::= (" + Times(5, "[a-z]", "|") + ")+ \"9\"",
           "root ::= (" + Times(5, "[^x]", "|") + ")* \"9\"",
           "root ::= (" + Times(5, ".", "|") + ")* \"9\"",
           "root ::= " + Times(5, "[a-z] root", "|") + " | \"9\"",
           "root ::= (" + Times(5, "o", "|") + ")*\no ::= [a-z] x\nx ::= .?",
           std::string("root ::= (\"e\" | [a-e] | [e-z] | [^f] | \"é\" | .)*"),
       }) {
    EXPECT_NE(Message(grammar).find("repeats without end one and the same "
                                    "character in more than 4 ways"),
              std::string::npos)
        << grammar << Message(grammar);
  }
  EXPECT_NE(Message("root ::= (" + Times(40, "[a-z]", "|") + ")+ \"9\"")
                .find("the same character in more than 16 ways"),
            std::string::npos);
  EXPECT_EQ(Message("root ::= ([a-c] | [d-f] | [g-i] | [j-l] | [m-o] | .)*"),
            "");
}

TEST(CheckGrammarTest, LimitsOptionalItemsOfTheSameCharacter) {
  std::string chain = "root ::= a0 \"9\"\no ::= [a-z]?\na40 ::= o\n";
  for (int i = 0; i < 40; ++i) {
    chain += Name(i) + " ::= o " + Name(i + 1) + " | \"\"\n";
  }
  EXPECT_NE(Message(chain).find("more than 16 ways"), std::string::npos)
      << Message(chain);
  EXPECT_NE(Message("root ::= " + Times(100, "[a-z]?", " "))
                .find("rule 'root' may be one and the same character in more "
                      "than 16 ways"),
            std::string::npos);
  EXPECT_EQ(Message("root ::= " + Times(16, "[a-z]?", " ")), "");
}

TEST(CheckGrammarTest, LimitsAlternatives) {
  EXPECT_EQ(Message("root ::= " + Times(1000, "\"item\"", "|")), "");
  EXPECT_NE(Message("root ::= " + Times(1100, "\"item\"", "|"))
                .find("more than 1024 ways"),
            std::string::npos);
}

// As tools make them of JSON schemas: many alternatives that begin alike, and
// chains of optional members.
TEST(CheckGrammarTest, AcceptsGrammarsOfJsonSchemas) {
  std::string members = "root ::= \"{\" a0-rest \"}\" space\n";
  for (int i = 0; i < 60; ++i) {
    const std::string a = Name(i);
    members += a + "-rest ::= ( \",\" space " + a + "-kv )? ";
    members += Name(i + 1) + "-rest\n";
    members += a + "-kv ::= \"\\\"" + a + "\\\"\" space \":\" space ";
    members += "(string | integer | color)\n";
  }
  members += "a60-rest ::= \"\"\n";
  std::string colors = "color ::= (\"\\\"color-0\\\"\"";
  for (int i = 1; i < 500; ++i) {
    colors += " | \"\\\"color-" + std::to_string(i) + "\\\"\"";
  }
  EXPECT_EQ(Message(members + colors + ") space" + R"(
char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})
string ::= "\"" char{0,200} "\"" space
integer ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) space
space ::= | " " | "\n"{1,2} [ \t]{0,20}
)"),
            "");
}

TEST(CheckGrammarTest, AcceptsTheExamplesOfLibllama) {
  int n_grammars = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(LKV_LLAMA_CPP_DIR "/grammars")) {
    if (entry.path().extension() != ".gbnf") continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_EQ(Message(text.str()), "") << entry.path();
    ++n_grammars;
  }
  EXPECT_GT(n_grammars, 0);
}

}  // namespace
}  // namespace lkv
