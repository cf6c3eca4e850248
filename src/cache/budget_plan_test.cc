#include "cache/budget_plan.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <string>

namespace lkv {
namespace {

// SmolLM2-135M: 23,040 bytes per token, pages of 4 KiB, 90 lanes.
constexpr KvShape kShape{
    .n_layers = 30, .n_kv_heads = 3, .group = 3, .head_dim = 64};
constexpr CacheCost kCost{.page_metadata_bytes = 100,
                          .lane_metadata_bytes = 300};
constexpr uint32_t kLanes = 90;

SequenceOptions Text(uint32_t n_tokens, Budget budget) {
  SequenceOptions options;
  options.prompt_tokens = n_tokens - n_tokens / 4;
  options.max_new_tokens = n_tokens / 4;
  options.cache.budget = budget;
  return options;
}

Budget Share(double share) {
  return {.kind = Budget::Kind::kShare, .share = share};
}
Budget Tokens(uint64_t n) {
  return {.kind = Budget::Kind::kTokens, .amount = n};
}
Budget Bytes(uint64_t n) { return {.kind = Budget::Kind::kBytes, .amount = n}; }

TEST(BudgetPlanTest, ShareIsOfPayloadOfPromptAndNewTokens) {
  BudgetPlan plan =
      MakeBudgetPlan(kShape, Text(4000, Share(0.25)), kCost).value();
  EXPECT_EQ(plan.budget_bytes, 1000u * 23040);
  // What the pages, their metadata and the fixed cost leave is less than one
  // more page.
  const uint64_t used = kCost.TotalBytes(kShape, plan.capacity_pages);
  EXPECT_LE(used, plan.budget_bytes);
  EXPECT_GT(used + 4096 + 100, plan.budget_bytes);
  EXPECT_FALSE(plan.holds_whole_text);
}

TEST(BudgetPlanTest, TokensAndBytesAreTheSameCap) {
  BudgetPlan tokens =
      MakeBudgetPlan(kShape, Text(4000, Tokens(1000)), kCost).value();
  BudgetPlan bytes =
      MakeBudgetPlan(kShape, Text(4000, Bytes(1000 * 23040)), kCost).value();
  EXPECT_EQ(tokens.budget_bytes, bytes.budget_bytes);
  EXPECT_EQ(tokens.capacity_pages, bytes.capacity_pages);
}

TEST(BudgetPlanTest, FullAndHundredPercentHoldTheWholeTextAndItsMetadata) {
  for (Budget budget : {Budget{}, Share(1.0), Share(1.5)}) {
    BudgetPlan plan = MakeBudgetPlan(kShape, Text(1000, budget), kCost).value();
    EXPECT_TRUE(plan.holds_whole_text);
    EXPECT_EQ(plan.capacity_pages, kLanes * 63u);
    EXPECT_EQ(plan.budget_bytes,
              uint64_t{kLanes} * 63 * (4096 + 100) + kLanes * 300);
  }
}

TEST(BudgetPlanTest, DisabledCacheIsFullWhateverTheBudget) {
  SequenceOptions options = Text(1000, Bytes(1));
  options.cache.enabled = false;
  EXPECT_TRUE(MakeBudgetPlan(kShape, options, kCost).value().holds_whole_text);
}

TEST(BudgetPlanTest, MoreThanTheTextNeedsBuysNoMorePages) {
  BudgetPlan plan =
      MakeBudgetPlan(kShape, Text(1000, Bytes(uint64_t{1} << 40)), kCost)
          .value();
  EXPECT_EQ(plan.capacity_pages, kLanes * 63u);
  EXPECT_EQ(plan.budget_bytes, uint64_t{1} << 40);
  plan =
      MakeBudgetPlan(kShape, Text(1000, Tokens(~uint64_t{0})), kCost).value();
  EXPECT_TRUE(plan.holds_whole_text);
}

TEST(BudgetPlanTest, SmallShareIsRaisedToWhatWorks) {
  BudgetPlan plan =
      MakeBudgetPlan(kShape, Text(4000, Share(0.01)), kCost).value();
  // Twice 4 sinks and 128 recent tokens: 264, in 17 pages.
  EXPECT_EQ(plan.capacity_pages, 17 * kLanes);
  EXPECT_GE(plan.capacity_pages / kLanes, plan.protected_pages + 1);
}

// Both values that a refusal names: they work, and one less does not.
TEST(BudgetPlanTest, RefusalNamesTheSmallestBytesAndTokens) {
  for (uint32_t text_tokens : {9, 200, 4000}) {
    SCOPED_TRACE(text_tokens);
    const auto plan = [&](Budget budget) {
      return MakeBudgetPlan(kShape, Text(text_tokens, budget), kCost);
    };
    for (Budget budget : {Tokens(5), Bytes(5 * 23040)}) {
      const Status refused = plan(budget).status();
      EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
      const std::string message(refused.message());
      const size_t at = message.find("use at least ");
      ASSERT_NE(at, std::string::npos) << message;
      uint64_t n_bytes = 0, n_tokens = 0;
      ASSERT_EQ(std::sscanf(&message[at], "use at least %luB (%lu tokens)",
                            &n_bytes, &n_tokens),
                2)
          << message;
      EXPECT_TRUE(plan(Bytes(n_bytes)).ok());
      EXPECT_FALSE(plan(Bytes(n_bytes - 1)).ok());
      EXPECT_TRUE(plan(Tokens(n_tokens)).ok());
      EXPECT_FALSE(plan(Tokens(n_tokens - 1)).ok());
    }
  }
}

TEST(BudgetPlanTest, RefusalSaysWhatTheBudgetCannotHold) {
  const auto message = [](uint32_t text_tokens) {
    return std::string(
        MakeBudgetPlan(kShape, Text(text_tokens, Tokens(5)), kCost)
            .status()
            .message());
  };
  EXPECT_NE(message(9).find("a text of 9 tokens"), std::string::npos);
  EXPECT_NE(message(4000).find("4 sink and 128 recent"), std::string::npos);
}

TEST(BudgetPlanTest, ShortTextNeedsNoMoreThanItself) {
  // 64 tokens are fewer than the protected ones: the whole text is enough.
  BudgetPlan plan =
      MakeBudgetPlan(kShape, Text(64, Share(0.25)), kCost).value();
  EXPECT_TRUE(plan.holds_whole_text);
}

TEST(BudgetPlanTest, PinnedTextRaisesTheSmallestOncePerToken) {
  SequenceOptions options = Text(4000, Share(0.01));
  options.pinned = {{0, 100}, {50, 120}, {3000, 3010}};
  BudgetPlan plan = MakeBudgetPlan(kShape, options, kCost).value();
  // 120 tokens, sinks among them, 10 and 128 recent ones.
  EXPECT_EQ(plan.capacity_pages, (2 * 258 + 15) / 16 * kLanes);
  // Pages 0..7 and 187..188, and 9 for 128 tokens that end anywhere.
  EXPECT_EQ(plan.protected_pages, 8u + 2 + 9);
}

TEST(BudgetPlanTest, DenseLayersAboveHalfTheBudgetAreRefused) {
  SequenceOptions options = Text(4000, Share(0.25));
  options.cache.dense_layers = 2;  // 6.7 % of the text, 27 % of the budget
  BudgetPlan plan = MakeBudgetPlan(kShape, options, kCost).value();
  EXPECT_EQ(plan.n_dense_lanes, 6u);
  EXPECT_GE(plan.mean_pages(kLanes), plan.protected_pages + 1);
  options.cache.dense_layers = 3;  // 40 %, and 12 % for sinks and recent
  Result<BudgetPlan> refused = MakeBudgetPlan(kShape, options, kCost);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("dense_layers"), std::string::npos);
  options.cache.budget = {};
  EXPECT_TRUE(MakeBudgetPlan(kShape, options, kCost).ok());
  options.cache.dense_layers = 31;
  EXPECT_FALSE(MakeBudgetPlan(kShape, options, kCost).ok());
}

TEST(BudgetPlanTest, PolicyFullWantsTheWholeText) {
  SequenceOptions options = Text(4000, Share(0.5));
  options.cache.policy = PolicyName::kFull;
  Result<BudgetPlan> plan = MakeBudgetPlan(kShape, options, kCost);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  options.cache.budget = {};
  EXPECT_TRUE(MakeBudgetPlan(kShape, options, kCost).ok());
}

TEST(BudgetPlanTest, ShareOfNothingOrNotANumberIsRefused) {
  for (double share : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE(MakeBudgetPlan(kShape, Text(4000, Share(share)), kCost).ok());
  }
}

TEST(BudgetPlanTest, NoLongerTextHasFewerPagesAndTheLongestHasTheMost) {
  for (Budget budget : {Budget{}, Share(0.01), Share(0.25), Share(0.97),
                        Tokens(700), Bytes(60 << 20)}) {
    for (uint32_t dense_layers : {0u, 1u}) {
      SequenceOptions options = Text(1, budget);
      options.max_tokens = 4000;
      options.cache.dense_layers = dense_layers;
      options.pinned = {{100, 130}};
      if (!MakeBudgetPlan(kShape, options, kCost).ok()) {
        EXPECT_EQ(dense_layers, 1u);  // 1 % cannot hold 1 layer of 30
        continue;
      }
      BudgetPlan before;
      for (uint32_t n_tokens = 1; n_tokens <= 4000; ++n_tokens) {
        options.prompt_tokens = n_tokens;
        options.max_new_tokens = 0;
        const BudgetPlan plan = MakeBudgetPlan(kShape, options, kCost).value();
        ASSERT_GE(plan.budget_bytes, before.budget_bytes) << n_tokens;
        ASSERT_GE(plan.capacity_pages, before.capacity_pages) << n_tokens;
        ASSERT_LE(plan.capacity_pages, plan.capacity_pages_max) << n_tokens;
        if (n_tokens > 1) {
          ASSERT_EQ(plan.capacity_pages_max, before.capacity_pages_max);
          ASSERT_EQ(plan.pages_per_lane, before.pages_per_lane);
        }
        if (plan.holds_whole_text) {
          ASSERT_LE(plan.text_pages, plan.pages_per_lane) << n_tokens;
        }
        ASSERT_LE(kCost.TotalBytes(kShape, plan.capacity_pages),
                  plan.budget_bytes);
        before = plan;
      }
      EXPECT_EQ(before.capacity_pages, before.capacity_pages_max);
    }
  }
}

TEST(BudgetPlanTest, TheLongestTextDecidesWhetherABudgetIsRefused) {
  // 200 tokens are held whole; of 4000 too few could be chosen.
  SequenceOptions options = Text(200, Tokens(220));
  EXPECT_TRUE(MakeBudgetPlan(kShape, options, kCost).ok());
  options.max_tokens = 4000;
  EXPECT_FALSE(MakeBudgetPlan(kShape, options, kCost).ok());

  // A short text needs more than its share, and gets it for the sake of the
  // longer ones.
  options = Text(200, Share(0.25));
  options.cache.dense_layers = 1;
  EXPECT_FALSE(MakeBudgetPlan(kShape, options, kCost).ok());
  options.max_tokens = 4000;
  EXPECT_TRUE(MakeBudgetPlan(kShape, options, kCost).value().holds_whole_text);
}

}  // namespace
}  // namespace lkv
