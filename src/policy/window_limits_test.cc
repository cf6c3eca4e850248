#include "policy/window_limits.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

constexpr uint64_t kPlenty = 1u << 30;

TEST(WindowLimitsTest, WithoutWindowKeysTheWindowIsTheBudget) {
  WindowLimits limits = ResolveWindow({}, 8192, kPlenty, 1500);
  EXPECT_EQ(limits.base_tokens, 1500u);
  EXPECT_EQ(limits.min_tokens, 1500u);
  EXPECT_EQ(limits.max_tokens, 1500u);
  EXPECT_EQ(limits.min_tokens, limits.max_tokens);
}

TEST(WindowLimitsTest, AutoBaseIsAQuarterOfTheLongestSequenceOr1024) {
  CacheOptions options;
  options.base_window_auto = true;
  EXPECT_EQ(ResolveWindow(options, 32768, kPlenty, kPlenty).base_tokens, 8192u);
  EXPECT_EQ(ResolveWindow(options, 2048, kPlenty, kPlenty).base_tokens, 1024u);
}

TEST(WindowLimitsTest, AutoMaximumIsOneAndAHalfBasesOrHalfTheMemory) {
  CacheOptions options;
  options.base_window_tokens = 2048;
  options.max_window_auto = true;
  EXPECT_EQ(ResolveWindow(options, 8192, kPlenty, kPlenty).max_tokens, 3072u);
  EXPECT_EQ(ResolveWindow(options, 8192, 5000, kPlenty).max_tokens, 2500u);
}

TEST(WindowLimitsTest, ExplicitKeysBeatAuto) {
  CacheOptions options;
  options.base_window_auto = true;
  options.base_window_tokens = 2048;
  options.max_window_auto = true;
  options.max_window_tokens = 8192;
  options.min_window_tokens = 256;
  WindowLimits limits = ResolveWindow(options, 32768, 1000, kPlenty);
  EXPECT_EQ(limits.base_tokens, 2048u);
  EXPECT_EQ(limits.max_tokens, 8192u);
  EXPECT_EQ(limits.min_tokens, 256u);
}

TEST(WindowLimitsTest, KeysNotGivenAreAsIfAuto) {
  CacheOptions options;
  options.max_window_tokens = 8192;
  WindowLimits limits = ResolveWindow(options, 32768, kPlenty, kPlenty);
  EXPECT_EQ(limits.base_tokens, 8192u);
  EXPECT_EQ(limits.min_tokens, 2048u);
  options = {};
  options.base_window_tokens = 2048;
  EXPECT_EQ(ResolveWindow(options, 8192, kPlenty, kPlenty).max_tokens, 3072u);
}

TEST(WindowLimitsTest, TheBudgetCapsAllAndTheOrderHolds) {
  CacheOptions options;
  options.base_window_tokens = 2048;
  options.max_window_tokens = 8192;
  WindowLimits limits = ResolveWindow(options, 8192, kPlenty, 1000);
  EXPECT_EQ(limits.min_tokens, 512u);
  EXPECT_EQ(limits.base_tokens, 1000u);
  EXPECT_EQ(limits.max_tokens, 1000u);
  limits = ResolveWindow(options, 8192, kPlenty, 300);
  EXPECT_EQ(limits.min_tokens, 300u);
  options.max_window_tokens = 1024;  // below the base
  limits = ResolveWindow(options, 8192, kPlenty, kPlenty);
  EXPECT_EQ(limits.base_tokens, 1024u);
  EXPECT_EQ(limits.min_tokens, 256u);
}

TEST(WindowLimitsTest, AStaticWindowIsItsBase) {
  CacheOptions options;
  options.window_strategy = WindowStrategy::kStatic;
  options.base_window_tokens = 2048;
  options.max_window_tokens = 8192;
  WindowLimits limits = ResolveWindow(options, 8192, kPlenty, kPlenty);
  EXPECT_EQ(limits.max_tokens, 2048u);
  EXPECT_EQ(limits.min_tokens, limits.max_tokens);
}

}  // namespace
}  // namespace lkv
