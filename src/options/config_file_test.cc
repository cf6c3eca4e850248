#include "options/config_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

namespace lkv {
namespace {

std::string ErrorOf(std::string_view contents) {
  const auto parsed = ParseConfigFile(contents, "f.yaml");
  if (parsed.ok()) return "accepted";
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  const std::string message(parsed.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_NE(message.find("; "), std::string::npos) << "no remedy: " << message;
  return message;
}

TEST(ConfigFileTest, GivesKeysTextsAndLines) {
  const auto settings = ParseConfigFile(
      "# mine\n"
      "lookahead_kv:\n"
      "  enabled: true\n"
      "\n"
      "  budget: \"25%\"   # of the request\n",
      "f.yaml");
  ASSERT_TRUE(settings.ok()) << settings.status().message();
  ASSERT_EQ(settings->size(), 2u);
  EXPECT_EQ((*settings)[0].key, "enabled");
  EXPECT_EQ((*settings)[0].text, "true");
  EXPECT_EQ((*settings)[0].line, 3);
  EXPECT_EQ((*settings)[1].key, "budget");
  EXPECT_EQ((*settings)[1].text, "25%");
  EXPECT_EQ((*settings)[1].line, 5);
}

TEST(ConfigFileTest, KeysOfAGroupAreNamedWithIt) {
  const auto settings = ParseConfigFile(
      "lookahead_kv:\n"
      "  tiers:\n"
      "    attend: 0.5\n"
      "    enabled: true\n"
      "  policy: lru\n",
      "f.yaml");
  ASSERT_TRUE(settings.ok()) << settings.status().message();
  ASSERT_EQ(settings->size(), 3u);
  EXPECT_EQ((*settings)[0].key, "tiers.attend");
  EXPECT_EQ((*settings)[0].line, 3);
  EXPECT_EQ((*settings)[1].key, "tiers.enabled");
  EXPECT_EQ((*settings)[2].key, "policy");
}

TEST(ConfigFileTest, AGroupIsNoValueAndAValueNoGroup) {
  EXPECT_EQ(ErrorOf("lookahead_kv:\n  tiers: true\n"),
            "f.yaml:2: 'tiers' holds keys of its own; write them below it");
  EXPECT_NE(ErrorOf("lookahead_kv:\n  policy:\n    lru: 1\n")
                .find("f.yaml:3: a mapping stands where"),
            std::string::npos);
  EXPECT_NE(ErrorOf("lookahead_kv:\n  tiers:\n    attend: 1\n    attend: 1\n")
                .find("key 'tiers.attend' was already given in line 3"),
            std::string::npos);
}

TEST(ConfigFileTest, NothingInItSetsNothing) {
  for (const char* contents :
       {"", "\n\n", "# only a comment\n", "---\n", "lookahead_kv:\n",
        "lookahead_kv: {}\n", "{}\n", "\xef\xbb\xbf"}) {
    const auto settings = ParseConfigFile(contents, "f.yaml");
    ASSERT_TRUE(settings.ok()) << contents << settings.status().message();
    EXPECT_TRUE(settings->empty());
  }
}

TEST(ConfigFileTest, AKeyGivenTwiceIsRefusedWithBothLines) {
  const std::string error =
      ErrorOf("lookahead_kv:\n  budget: full\n  score: x\n  budget: 25%\n");
  EXPECT_EQ(error.find("f.yaml:4: "), 0u) << error;
  EXPECT_NE(error.find("line 2"), std::string::npos) << error;
  EXPECT_EQ(
      ErrorOf("lookahead_kv: {a: 1}\nlookahead_kv: {b: 2}\n").find("f.yaml:2:"),
      0u);
}

TEST(ConfigFileTest, AnotherBlockIsRefused) {
  EXPECT_NE(ErrorOf("lookahed_kv:\n  budget: full\n")
                .find("did you mean 'lookahead_kv'?"),
            std::string::npos);
  EXPECT_NE(ErrorOf("budget: full\n").find("f.yaml:1: unknown block 'budget'"),
            std::string::npos);
}

TEST(ConfigFileTest, ValuesThatAreNotPlainAreRefusedWithTheirLine) {
  EXPECT_EQ(ErrorOf("lookahead_kv:\n  budget:\n    - 1\n").find("f.yaml:3:"),
            0u);
  EXPECT_EQ(ErrorOf("lookahead_kv:\n  budget: {a: 1}\n").find("f.yaml:2:"), 0u);
  EXPECT_EQ(ErrorOf("lookahead_kv:\n  budget:\n").find("f.yaml:2:"), 0u);
  EXPECT_EQ(ErrorOf("lookahead_kv:\n  budget: ~\n").find("f.yaml:2:"), 0u);
  EXPECT_EQ(ErrorOf("- lookahead_kv\n").find("f.yaml:1:"), 0u);
  EXPECT_EQ(ErrorOf("lookahead_kv: 5\n").find("f.yaml:1:"), 0u);
  EXPECT_EQ(ErrorOf("just words\n").find("f.yaml:1:"), 0u);
  EXPECT_EQ(ErrorOf("lookahead_kv:\n  ? [a, b]\n  : c\n").find("f.yaml:2:"),
            0u);
}

TEST(ConfigFileTest, AnAliasBombIsRefusedAtItsFirstAlias) {
  std::string bomb = "lookahead_kv:\n  a: &a [x, x]\n";
  for (char c = 'b'; c <= 'z'; ++c) {
    const char previous = static_cast<char>(c - 1);
    bomb += std::string("  ") + c + ": &" + c + " [*" + previous + ", *" +
            previous + "]\n";
  }
  EXPECT_EQ(ErrorOf(bomb).find("f.yaml:2:"), 0u);
  EXPECT_NE(
      ErrorOf("lookahead_kv:\n  a: &a 1\n  b: *a\n").find("f.yaml:3: alias"),
      std::string::npos);
}

TEST(ConfigFileTest, DeepNestingIsRefused) {
  EXPECT_NE(ErrorOf(std::string(100000, '[')), "accepted");
  EXPECT_NE(ErrorOf(std::string(100000, '{')), "accepted");
}

TEST(ConfigFileTest, BrokenYamlIsRefusedWithItsLine) {
  EXPECT_EQ(ErrorOf("lookahead_kv:\n  a: \"open").find("f.yaml:2:"), 0u);
  EXPECT_EQ(ErrorOf("lookahead_kv: {a: 1\n").find("f.yaml:"), 0u);
  EXPECT_EQ(ErrorOf("lookahead_kv:\n  a: 1\n b: 2\n").find("f.yaml:3:"), 0u);
  EXPECT_EQ(ErrorOf("lookahead_kv:\n\ta: 1\n").find("f.yaml:2:"), 0u);
}

TEST(ConfigFileTest, BytesThatAreNotUtf8AreRefusedWithTheirLine) {
  EXPECT_EQ(ErrorOf("lookahead_kv:\n  a: \xff\xfe\n"),
            "f.yaml:2: not UTF-8; save the file as UTF-8");
  EXPECT_EQ(ErrorOf("a\n\xc0\xaf").find("f.yaml:2:"), 0u) << "overlong";
  EXPECT_EQ(ErrorOf("a\n\n\xed\xa0\x80").find("f.yaml:3:"), 0u) << "surrogate";
  EXPECT_EQ(ErrorOf("\xe2\x82").find("f.yaml:1:"), 0u) << "cut off";
}

TEST(ConfigFileTest, ASecondDocumentIsRefused) {
  EXPECT_NE(ErrorOf("lookahead_kv: {}\n---\nlookahead_kv: {}\n")
                .find("two YAML documents"),
            std::string::npos);
}

TEST(ReadConfigFileTest, AFileThatIsNotThereIsNotFound) {
  for (const char* path : {"/nonexistent/f.yaml", "/tmp"}) {
    const auto settings = ReadConfigFile(path);
    ASSERT_FALSE(settings.ok());
    EXPECT_EQ(settings.status().code(), StatusCode::kNotFound);
    EXPECT_EQ(settings.status().message().find(path), 0u);
  }
}

TEST(ReadConfigFileTest, AnEndlessFileIsRefused) {
  const auto settings = ReadConfigFile("/dev/zero");
  ASSERT_FALSE(settings.ok());
  EXPECT_NE(settings.status().message().find("1 MiB"), std::string::npos);
}

}  // namespace
}  // namespace lkv
