#include "options/auto_window.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

CacheOptions BothAuto() {
  CacheOptions options;
  options.base_window_auto = true;
  options.max_window_auto = true;
  return options;
}

TEST(ResolveAutoWindowsTest, BaseIsAQuarterOfTheLongestSequence) {
  CacheOptions options = BothAuto();
  ResolveAutoWindows({8192, 24 * kGiB, 23040}, &options);
  EXPECT_EQ(options.base_window_tokens, 2048u);
  EXPECT_EQ(options.max_window_tokens, 3072u);
  EXPECT_FALSE(options.base_window_auto || options.max_window_auto);
}

TEST(ResolveAutoWindowsTest, BaseIsAtLeast1024) {
  CacheOptions options = BothAuto();
  ResolveAutoWindows({2000, 24 * kGiB, 23040}, &options);
  EXPECT_EQ(options.base_window_tokens, 1024u);
  EXPECT_EQ(options.max_window_tokens, 1536u);
}

TEST(ResolveAutoWindowsTest, MaximumIsAtMostHalfTheMemoryInTokens) {
  CacheOptions options = BothAuto();
  ResolveAutoWindows({32768, 4000 * uint64_t{1000}, 1000}, &options);
  EXPECT_EQ(options.base_window_tokens, 8192u);
  EXPECT_EQ(options.max_window_tokens, 2000u);
}

TEST(ResolveAutoWindowsTest, ExplicitKeysBeatAuto) {
  CacheOptions options;
  options.base_window_tokens = 3000;
  options.max_window_auto = true;
  ResolveAutoWindows({8192, 24 * kGiB, 23040}, &options);
  EXPECT_EQ(options.base_window_tokens, 3000u);
  EXPECT_EQ(options.max_window_tokens, 4500u);

  options = CacheOptions();
  options.base_window_auto = true;
  options.max_window_tokens = 777;
  ResolveAutoWindows({8192, 24 * kGiB, 23040}, &options);
  EXPECT_EQ(options.base_window_tokens, 2048u);
  EXPECT_EQ(options.max_window_tokens, 777u);
}

TEST(ResolveAutoWindowsTest, LeavesKeysThatNobodySetOpen) {
  CacheOptions options;
  ResolveAutoWindows({8192, 24 * kGiB, 0}, &options);
  EXPECT_FALSE(options.base_window_tokens.has_value());
  EXPECT_FALSE(options.max_window_tokens.has_value());
}

TEST(ResolveAutoWindowsTest, AMaximumAloneTakesTheBaseThatAutoWouldGive) {
  CacheOptions options;
  options.max_window_auto = true;
  ResolveAutoWindows({8192, 24 * kGiB, 23040}, &options);
  EXPECT_FALSE(options.base_window_tokens.has_value());
  EXPECT_EQ(options.max_window_tokens, 3072u);
}

}  // namespace
}  // namespace lkv
