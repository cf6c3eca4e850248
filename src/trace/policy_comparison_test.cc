#include "trace/policy_comparison.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "trace/testing_traces.h"

namespace lkv {
namespace {

// Traces say nothing about what they take for sinks.
TEST(FindContestantTest, ExpectationsNeedTheSinksOfTheTrace) {
  CacheOptions options;
  options.sink_tokens = kTraceSinkTokens - 1;
  const auto few = FindContestant("expected_attention", options, nullptr,
                                  *SelectKernels(nullptr));
  EXPECT_EQ(few.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(few.status().message().find("sink_tokens"), std::string::npos);
  options.sink_tokens = kTraceSinkTokens;
  EXPECT_TRUE(FindContestant("expected_attention", options, nullptr,
                             *SelectKernels(nullptr))
                  .ok());
}

class ComparisonTest : public testing::Test {
 protected:
  ComparisonTest() : team_(2) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      traces_.push_back(Synthetic({.n_steps = 1024,
                                   .n_layers = 1,
                                   .n_kv_heads = 2,
                                   .topic_tokens = 300,
                                   .seed = seed}));
    }
    options_.policies = {"lookahead", "random", "oracle_future"};
    options_.budgets = {0.25, 0.5};
  }
  Result<std::vector<ComparisonRow>> Compare() {
    return ComparePolicies(traces_, options_, *SelectKernels(nullptr), team_,
                           {}, {});
  }
  StatusCode Refusal() { return Compare().status().code(); }

  ThreadTeam team_;
  std::vector<TraceReader> traces_;
  ComparisonOptions options_;
};

TEST_F(ComparisonTest, ListsEveryPolicyAtEveryBudget) {
  const auto rows = Compare();
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  ASSERT_EQ(rows->size(), 6u);
  EXPECT_EQ((*rows)[0].policy, "lookahead");
  EXPECT_EQ((*rows)[4].policy, "random");
  EXPECT_EQ((*rows)[0].budget, 0.25);
  EXPECT_EQ((*rows)[5].budget, 0.5);
  for (const ComparisonRow& row : *rows) {
    ASSERT_TRUE(row.mass_hit_ci.has_value());
    EXPECT_LE(row.mass_hit_ci->low, row.total.mass_hit());
    EXPECT_GE(row.mass_hit_ci->high, row.total.mass_hit());
    if (row.policy == "random") {
      EXPECT_LT(row.mass_hit_ci->low, row.mass_hit_ci->high);
    }
  }
  for (size_t first : {size_t{0}, size_t{3}}) {
    EXPECT_EQ((*rows)[first + 1].regret, 1) << "random";
    EXPECT_EQ((*rows)[first + 2].regret, 0) << "the oracle";
    EXPECT_GT((*rows)[first].regret, 0);
    EXPECT_LT((*rows)[first].regret, 1);
  }
}

TEST_F(ComparisonTest, AddsUpAllLanesOfAllTexts) {
  const auto rows = Compare();
  ASSERT_TRUE(rows.ok());
  ReplaySums by_hand;
  for (const TraceReader& trace : traces_) {
    for (uint32_t lane = 0; lane < 2; ++lane) {
      const auto lane_trace = trace.ReadLane(lane);
      ASSERT_TRUE(lane_trace.ok());
      by_hand +=
          FindContestant("lookahead", {}, nullptr, *SelectKernels(nullptr))
              ->replay(*lane_trace, lane,
                       {.capacity_pages = 16,
                        .ends = {},
                        .unit = options_.cache.unit});
    }
  }
  EXPECT_DOUBLE_EQ((*rows)[0].total.mass_hit(), by_hand.mass_hit());
  EXPECT_EQ((*rows)[0].total.n_needed, by_hand.n_needed);
}

TEST_F(ComparisonTest, HasNoIntervalOfOneText) {
  traces_.erase(traces_.begin() + 1, traces_.end());
  const auto rows = Compare();
  ASSERT_TRUE(rows.ok());
  EXPECT_FALSE((*rows)[0].mass_hit_ci.has_value());
  EXPECT_FALSE((*rows)[0].regret_ci.has_value());
}

TEST_F(ComparisonTest, RefusesWhatCannotBeCompared) {
  options_.budgets = {0.05};
  EXPECT_EQ(Refusal(), StatusCode::kInvalidArgument) << "all protected";
  options_.budgets = {1};
  EXPECT_EQ(Refusal(), StatusCode::kInvalidArgument) << "nothing leaves";
  options_.budgets = {0.5};
  options_.policies = {"lokahead"};
  EXPECT_EQ(Refusal(), StatusCode::kInvalidArgument);
  options_.policies = {"full"};
  EXPECT_EQ(Refusal(), StatusCode::kInvalidArgument);
}

TEST_F(ComparisonTest, StopsOnRequest) {
  const auto rows = ComparePolicies(traces_, options_, *SelectKernels(nullptr),
                                    team_, {}, [] { return true; });
  EXPECT_EQ(rows.status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace lkv
