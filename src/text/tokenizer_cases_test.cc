// The tokenizer cases that llama.cpp ships beside its vocabularies: texts
// (.inp) and the tokens that the original tokenizers give (.out).

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "text/tokenizer.h"

namespace lkv {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

struct TokenizerCase {
  std::string text;
  std::vector<int32_t> tokens;
};

std::vector<TokenizerCase> ReadCases(const std::string& vocabulary) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  const std::string input = ReadFile(vocabulary + ".inp");
  std::ifstream output(vocabulary + ".out");
  std::vector<TokenizerCase> cases;
  size_t begin = 0;
  for (std::string line; std::getline(output, line);) {
    const size_t end = input.find(kSeparator, begin);
    TokenizerCase one;
    one.text = input.substr(begin, end - begin);
    std::istringstream numbers(line);
    for (int32_t token; numbers >> token;) one.tokens.push_back(token);
    cases.push_back(std::move(one));
    if (end == input.npos) break;
    begin = end + kSeparator.size();
  }
  return cases;
}

// Paths of the vocabularies that come with cases.
std::vector<std::string> Vocabularies() {
  std::vector<std::string> paths;
  for (const auto& entry :
       fs::directory_iterator(LKV_LLAMA_CPP_DIR "/models")) {
    const std::string path = entry.path().string();
    if (path.ends_with(".gguf") && fs::exists(path + ".inp")) {
      paths.push_back(path);
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string NameOf(const std::string& path) {
  std::string name = fs::path(path).stem().string();
  return name.substr(std::string_view("ggml-vocab-").size());
}

class TokenizerCasesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(TokenizerCasesTest, EveryTextGivesTheTokensOfTheOriginal) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Open(GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const std::vector<TokenizerCase> cases = ReadCases(GetParam());
  ASSERT_GE(cases.size(), 40u);
  for (const TokenizerCase& one : cases) {
    EXPECT_EQ((*tokenizer)
                  ->Tokenize(one.text, Tokenizer::Start::kNone,
                             Tokenizer::Special::kAsText),
              one.tokens)
        << "text: '" << one.text << "'";
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerCasesTest,
                         ::testing::ValuesIn(Vocabularies()),
                         [](const auto& info) {
                           std::string name = NameOf(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// So that a vocabulary that moves does not fall silent.
TEST(TokenizerCasesSetTest, AllShippedVocabulariesRun) {
  EXPECT_EQ(Vocabularies().size(), 15u);
}

}  // namespace
}  // namespace lkv
