#include "eval/source_table.h"

#include <gtest/gtest.h>

#include <string>

namespace lkv {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(SourceTableTest, TheBudgetIsWhatLeavesWeightsAndKvTheShareSmaller) {
  const auto budget = BudgetThatSaves(0.25, 96 * kMiB, 64 * kMiB);
  ASSERT_TRUE(budget.ok()) << budget.status().message();
  EXPECT_EQ(budget->kind, Budget::Kind::kBytes);
  EXPECT_EQ(budget->amount, 24 * kMiB) << "40 of 160 MiB are saved";

  DemoRow row;
  row.kv.resident_bytes_max = budget->amount;
  EXPECT_DOUBLE_EQ(SavedMemory(row, 64 * kMiB, 96 * kMiB), 0.25);
}

TEST(SourceTableTest, WhatKvAloneCannotSaveIsRefused) {
  const auto refused = BudgetThatSaves(0.35, 96 * kMiB, 48 * kMiB);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(refused.status().message()).find("none saves 50.4 MiB"),
            std::string::npos)
      << refused.status().message();
}

TEST(SourceTableTest, RunsAThousandTokensInAndTwoThousandOutWithoutAQuestion) {
  const DemoOptions options = SourceTableOptions();
  EXPECT_EQ(options.context_tokens, 1024u);
  EXPECT_EQ(options.forced_tokens, 2048u);
  EXPECT_TRUE(options.question.empty());
}

}  // namespace
}  // namespace lkv
