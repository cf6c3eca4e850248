// Long generations of the real model, short ones of them.
#include "eval/long_generation.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "eval/demo.h"
#include "testing/test_engine.h"

namespace lkv {
namespace {

std::vector<TokenizedText> DemoTexts() {
  return {{"demo", SharedEngine().tokenizer().Tokenize(
                       DemoText(), Tokenizer::Start::kAsTrained,
                       Tokenizer::Special::kAsText)}};
}

LongGenerationOptions ShortOptions() {
  LongGenerationOptions options;
  options.policies = {"streaming"};
  options.budgets = {{.kind = Budget::Kind::kTokens, .amount = 128}};
  options.prompt_tokens = 64;
  options.new_tokens = 160;
  options.cache.recent_tokens = 32;
  return options;
}

TEST(LongGenerationTest, ABudgetKeepsMemoryFlatWhereTheFullCacheGrows) {
  const LongGenerationOptions options = ShortOptions();
  uint64_t n_done = 0, n_all = 0;
  const auto report =
      MeasureLongGeneration(SharedEngine(), DemoTexts(), options,
                            [&](uint64_t done, uint64_t all) {
                              n_done = done;
                              n_all = all;
                            },
                            {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->size(), 1u);
  const LongGeneration& demo = report->front();
  EXPECT_EQ(demo.text_name, "demo");
  EXPECT_EQ(n_done, n_all);
  EXPECT_EQ(n_all, 640u);  // two texts, each written and read
  EXPECT_EQ(demo.full.policy, "full");
  EXPECT_EQ(demo.full.tokens.size(), 160u);
  EXPECT_EQ(demo.full.growth, std::nullopt);
  EXPECT_EQ(demo.full.evicted_tokens, 0u);
  EXPECT_EQ(demo.full.common_tokens, 160u);
  ASSERT_EQ(demo.rows.size(), 1u);
  const LongGenerationRow& streaming = demo.rows[0];
  EXPECT_EQ(streaming.tokens.size(), 160u);
  EXPECT_GT(streaming.evicted_tokens, 60u);
  ASSERT_TRUE(streaming.growth.has_value());
  EXPECT_LE(*streaming.growth, 1.02);
  EXPECT_LT(streaming.resident_bytes_max, demo.full.resident_bytes_max);
  EXPECT_LT(streaming.common_tokens, 160u);
  EXPECT_GT(streaming.perplexity, 1);
  EXPECT_LT(streaming.perplexity, 1000);
}

// Most of these characters take two or three tokens.
TEST(LongGenerationTest, TokensThatCompleteNoCharacterCount) {
  LongGenerationOptions options = ShortOptions();
  options.policies = {};
  options.temperature = 0;
  options.repeat_penalty = 1;
  std::string text;
  for (int i = 0; i < 20; ++i) text += "\u6f22\u5b57\u4eee\u540d\u6587";
  const std::vector<TokenizedText> texts = {
      {"kanji",
       SharedEngine().tokenizer().Tokenize(text, Tokenizer::Start::kAsTrained,
                                           Tokenizer::Special::kAsText)}};
  std::vector<uint64_t> told;
  const auto report = MeasureLongGeneration(
      SharedEngine(), texts, options,
      [&](uint64_t done, uint64_t) { told.push_back(done); }, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(told.size(), 320u);
  EXPECT_EQ(told.back(), 320u);
}

// Sampled mildly, a text is likelier than the same one drawn wildly.
TEST(LongGenerationTest, PerplexityIsThatOfTheFullCacheModel) {
  LongGenerationOptions options = ShortOptions();
  options.policies = {};
  options.temperature = 0;
  const auto greedy =
      MeasureLongGeneration(SharedEngine(), DemoTexts(), options, {}, {});
  options.temperature = 2;
  const auto wild =
      MeasureLongGeneration(SharedEngine(), DemoTexts(), options, {}, {});
  ASSERT_TRUE(greedy.ok() && wild.ok());
  EXPECT_LT(greedy->front().full.perplexity, wild->front().full.perplexity);
  EXPECT_LT(greedy->front().full.perplexity, 4);
}

TEST(LongGenerationTest, ABudgetThatHoldsEverythingWritesTheFullCachesText) {
  LongGenerationOptions options = ShortOptions();
  options.policies = {"lookahead"};
  options.budgets = {{.kind = Budget::Kind::kTokens, .amount = 4096}};
  options.new_tokens = 24;
  const auto report =
      MeasureLongGeneration(SharedEngine(), DemoTexts(), options, {}, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  const LongGeneration& demo = report->front();
  EXPECT_EQ(demo.rows[0].tokens, demo.full.tokens);
  EXPECT_EQ(demo.rows[0].common_tokens, 24u);
  EXPECT_EQ(demo.rows[0].perplexity, demo.full.perplexity);
}

TEST(LongGenerationTest, WhatCannotBeWrittenIsNamed) {
  LongGenerationOptions options = ShortOptions();
  options.policies = {"repeat"};
  auto report =
      MeasureLongGeneration(SharedEngine(), DemoTexts(), options, {}, {});
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(report.status().message().find("repeat"), std::string::npos);
  options = ShortOptions();
  options.prompt_tokens = 1u << 20;
  report = MeasureLongGeneration(SharedEngine(), DemoTexts(), options, {}, {});
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(report.status().message().find("demo: has"), std::string::npos);
  options = ShortOptions();
  options.new_tokens = 1u << 20;
  report = MeasureLongGeneration(SharedEngine(), DemoTexts(), options, {}, {});
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
}

TEST(LongGenerationTest, ItCanBeCancelled) {
  const auto report = MeasureLongGeneration(
      SharedEngine(), DemoTexts(), ShortOptions(), {}, [] { return true; });
  EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace lkv
