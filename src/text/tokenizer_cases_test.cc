// The tokenizer cases that llama.cpp ships beside its vocabularies: texts
// (.inp) and the tokens that the original tokenizers give (.out).

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <utility>

#include "llama.h"
#include "testing/test_paths.h"
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

std::string VocabularyPath(const std::string& name) {
  return LKV_LLAMA_CPP_DIR "/models/ggml-vocab-" + name + ".gguf";
}

// The texts of all cases of a vocabulary in random order, of more than
// n_bytes; between them stands what a cut may meet.
std::string JoinCases(const std::string& vocabulary, size_t n_bytes) {
  const std::vector<TokenizerCase> cases = ReadCases(vocabulary);
  std::mt19937 random(11);
  std::string text;
  while (text.size() < n_bytes) {
    text += cases[random() % cases.size()].text;
    constexpr const char* kJoints[] = {" ",  "a b",       "",
                                       "\n", "it's a  b", "9 c"};
    text += kJoints[random() % std::size(kJoints)];
  }
  return text;
}

// A text that is cut into pieces, by llama.cpp's own word for it in one call:
// for the vocabularies that are at hand and may be cut between words. The
// model's has no cases of its own.
TEST(TokenizerPiecesTest, PiecesGiveTheTokensOfTheWhole) {
  const std::string cases_of_gpt2 = VocabularyPath("gpt-2");
  std::vector<std::pair<std::string, std::string>> vocabularies_and_cases = {
      {TestModelPath(), cases_of_gpt2}};
  for (const char* name :
       {"gpt-2", "llama-bpe", "qwen2", "refact", "starcoder"}) {
    vocabularies_and_cases.emplace_back(VocabularyPath(name),
                                        VocabularyPath(name));
  }
  for (const auto& [path, cases] : vocabularies_and_cases) {
    SCOPED_TRACE(path);
    Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Open(path);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    EXPECT_TRUE((*tokenizer)->cuts_between_words());
    const std::string text = JoinCases(cases, 3 * Tokenizer::kWantedPieceBytes);
    const auto n_bytes = static_cast<int32_t>(text.size());
    std::vector<int32_t> whole(text.size() + 16);
    const int32_t n = llama_tokenize(
        (*tokenizer)->vocab(), text.data(), n_bytes, whole.data(),
        static_cast<int32_t>(whole.size()), /*add_special=*/false,
        /*parse_special=*/true);
    ASSERT_GT(n, 0);
    EXPECT_EQ((*tokenizer)
                  ->Tokenize(text, Tokenizer::Start::kNone,
                             Tokenizer::Special::kParse),
              std::vector<int32_t>(whole.begin(), whole.begin() + n));
    EXPECT_GE(static_cast<uint64_t>(n), (*tokenizer)->FewestTokens(text));
  }
}

TEST(TokenizerPiecesTest, OtherVocabulariesAreNotCutBetweenWords) {
  for (const char* name : {"llama-spm", "bert-bge", "deepseek-llm"}) {
    Result<std::unique_ptr<Tokenizer>> tokenizer =
        Tokenizer::Open(VocabularyPath(name));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    EXPECT_FALSE((*tokenizer)->cuts_between_words()) << name;
  }
}

// So that a vocabulary that moves does not fall silent.
TEST(TokenizerCasesSetTest, AllShippedVocabulariesRun) {
  EXPECT_EQ(Vocabularies().size(), 15u);
}

}  // namespace
}  // namespace lkv
