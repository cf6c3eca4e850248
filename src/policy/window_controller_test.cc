#include "policy/window_controller.h"

#include <cmath>

#include <gtest/gtest.h>

#include "policy/testing_state.h"

namespace lkv {
namespace {

TEST(WindowLawTest, TheSourcesLawGivesItsNumbers) {
  auto law = [](double change) {
    return WindowLawTokens(WindowLaw::kSource, 2048, change, 0.1);
  };
  EXPECT_DOUBLE_EQ(law(0.1), 3072);               // sigma(0) = 1/2
  EXPECT_NEAR(law(1.1), 2048 * 1.7310586, 0.01);  // sigma(1)
  EXPECT_NEAR(law(0.0), 2048 * 1.4750208, 0.01);  // sigma(-0.1)
  for (double change : {0.0, 0.1, 0.69, 5.0, 30.0}) {
    EXPECT_GT(law(change), 2048);
    EXPECT_LT(law(change), 4096);
  }
}

TEST(WindowLawTest, TheSymmetricLawSpansAQuarterToFourBases) {
  auto law = [](double change, double threshold) {
    return WindowLawTokens(WindowLaw::kSymmetric, 2048, change, threshold);
  };
  EXPECT_DOUBLE_EQ(law(0.1, 0.1), 2048);
  EXPECT_NEAR(law(10, 0.1), 8192, 0.1);
  EXPECT_NEAR(law(0, 10), 512, 0.1);
  // No change, a turn, and the most there is, at the default threshold.
  EXPECT_NEAR(law(0, 0.06), 972.73, 0.01);
  EXPECT_NEAR(law(0.1, 0.06), 3468.02, 0.01);
  EXPECT_NEAR(law(std::log(2.0), 0.06), 8191.93, 0.01);
}

WindowController::Options Dynamic() {
  return {
      .strategy = WindowStrategy::kDynamic,
      .limits = {.base_tokens = 1024, .min_tokens = 256, .max_tokens = 4096},
      .budget_tokens = 5000};
}

// Tokens seen when a controller is past its first 2 * base.
constexpr uint32_t kLate = 3000;

TEST(WindowControllerTest, StartsAtTheMaximumAndShrinksOnlyAfterTwoBases) {
  WindowController controller(Dynamic());
  for (uint32_t n = 0; n <= 2048; ++n) {
    controller.Update(0, n);
    ASSERT_EQ(controller.window_tokens(), 4096u) << n;
  }
  controller.Update(0, 2049);
  EXPECT_EQ(controller.window_tokens(), 480u);  // 1024 * 0.475, whole pages
}

TEST(WindowControllerTest, GoesOnElsewhere) {
  for (const WindowStrategy strategy :
       {WindowStrategy::kDynamic, WindowStrategy::kHybrid}) {
    WindowController::Options options = Dynamic();
    options.strategy = strategy;
    options.switch_tokens = kLate + 100;
    options.warmup_tokens = kLate;
    // Wherever it leaves: dwelling, frozen, warming up.
    for (uint32_t left = kLate - 10; left < kLate + 200; left += 7) {
      WindowController stays(options), elsewhere(options);
      const auto change = [](uint32_t n) { return n % 50 < 25 ? 0.0 : 0.3; };
      for (uint32_t n = 1; n <= left; ++n) stays.Update(change(n), n);
      MoveState(stays, elsewhere);
      EXPECT_EQ(elsewhere.window_tokens(), stays.window_tokens());
      EXPECT_EQ(elsewhere.may_evict(), stays.may_evict());
      EXPECT_EQ(elsewhere.rule(), stays.rule());
      for (uint32_t n = left + 1; n <= left + 100; ++n) {
        stays.Update(change(n), n);
        elsewhere.Update(change(n), n);
        ASSERT_EQ(elsewhere.window_tokens(), stays.window_tokens()) << n;
      }
    }
  }
}

TEST(WindowControllerTest, GrowsWhenThePatternChanges) {
  WindowController controller(Dynamic());
  controller.Update(0, kLate);
  uint32_t small = controller.window_tokens();
  controller.Update(0.3, kLate + 32);
  EXPECT_GT(controller.window_tokens(), 2048u);
  EXPECT_GT(controller.window_tokens(), small);
}

TEST(WindowControllerTest, StaysWithinItsLimits) {
  WindowController::Options options = Dynamic();
  options.limits = {.base_tokens = 1024, .min_tokens = 800, .max_tokens = 1536};
  WindowController controller(options);
  controller.Update(0, kLate);
  EXPECT_EQ(controller.window_tokens(), 800u);
  controller.Update(0.69, kLate + 100);
  EXPECT_EQ(controller.window_tokens(), 1536u);
}

TEST(WindowControllerTest, DwellsBetweenMoves) {
  WindowController controller(Dynamic());
  controller.Update(0, kLate);
  uint32_t before = controller.window_tokens();
  for (uint32_t n = kLate + 1; n < kLate + 32; ++n) {
    controller.Update(0.5, n);
    ASSERT_EQ(controller.window_tokens(), before);
  }
  controller.Update(0.5, kLate + 32);
  EXPECT_NE(controller.window_tokens(), before);
}

TEST(WindowControllerTest, IgnoresChangesInsideTheBand) {
  WindowController controller(Dynamic());
  controller.Update(0.1, kLate);
  uint32_t before = controller.window_tokens();
  for (uint32_t n = kLate + 1; n < kLate + 1000; ++n) {
    controller.Update(n % 2 == 0 ? 0.119 : 0.081, n);
    ASSERT_EQ(controller.window_tokens(), before);
  }
  controller.Update(0.121, kLate + 1000);
  EXPECT_GT(controller.window_tokens(), before);
}

TEST(WindowControllerTest, MovesInWholePages) {
  WindowController controller(Dynamic());
  for (uint32_t k = 0; k < 20; ++k) {
    controller.Update(0.03 * k, kLate + 40 * k);
    ASSERT_EQ(controller.window_tokens() % 16, 0u);
  }
}

TEST(WindowControllerTest, WarmUpAllowsTheWholeBudget) {
  WindowController::Options options = Dynamic();
  options.warmup_tokens = 2500;
  WindowController controller(options);
  EXPECT_FALSE(controller.may_evict());
  EXPECT_EQ(controller.window_tokens(), 5000u);
  controller.Update(0, 2499);
  EXPECT_FALSE(controller.may_evict());
  EXPECT_EQ(controller.window_tokens(), 5000u);
  controller.Update(0, 2500);
  EXPECT_TRUE(controller.may_evict());
  EXPECT_EQ(controller.window_tokens(), 480u);
}

TEST(WindowControllerTest, TheEndOfWarmUpIsNoMove) {
  WindowController::Options options = Dynamic();
  options.warmup_tokens = 1000;
  WindowController controller(options);
  for (uint32_t n = 0; n < 2049; ++n) {
    controller.Update(0, n);
    ASSERT_EQ(controller.window_tokens(), n < 1000 ? 5000u : 4096u) << n;
  }
  controller.Update(0, 2049);  // free to shrink, band or not
  EXPECT_EQ(controller.window_tokens(), 480u);
}

TEST(WindowControllerTest, HybridFreezesHalfwayAndEvictsByThreshold) {
  WindowController::Options options = Dynamic();
  options.strategy = WindowStrategy::kHybrid;
  options.switch_tokens = 3500;
  WindowController controller(options);
  controller.Update(0, kLate);
  EXPECT_EQ(controller.window_tokens(), 480u);
  EXPECT_EQ(controller.rule(), EvictionRule::kSizeAware);
  controller.Update(0.06, 3500);
  EXPECT_EQ(controller.window_tokens(), 1024u);
  EXPECT_EQ(controller.rule(), EvictionRule::kScoreThreshold);
  controller.Update(0.6, 4000);
  EXPECT_EQ(controller.window_tokens(), 1024u);
}

TEST(WindowControllerTest, AStaticWindowNeverMoves) {
  WindowController::Options options = Dynamic();
  options.strategy = WindowStrategy::kStatic;
  options.limits = {
      .base_tokens = 1000, .min_tokens = 1000, .max_tokens = 1000};
  WindowController controller(options);
  for (uint32_t n = 0; n < 5000; n += 50) {
    controller.Update(n % 100 == 0 ? 0.6 : 0, n);
    ASSERT_EQ(controller.window_tokens(), 1000u);
  }
}

WindowLimits Limits(uint32_t base, uint32_t min, uint32_t max) {
  return {.base_tokens = base, .min_tokens = min, .max_tokens = max};
}

TEST(WindowControllerTest, AWindowAtItsMaximumGrowsWithIt) {
  WindowController controller(Dynamic());
  controller.SetLimits(Limits(1024, 256, 6000), 8000, 0);
  EXPECT_EQ(controller.window_tokens(), 6000u);

  WindowController::Options warming_up = Dynamic();
  warming_up.warmup_tokens = 100;
  WindowController other(warming_up);
  other.SetLimits(Limits(1024, 256, 6000), 8000, 0);
  EXPECT_EQ(other.window_tokens(), 8000u);
  other.Update(0, 100);
  EXPECT_EQ(other.window_tokens(), 6000u);
}

TEST(WindowControllerTest, AWindowThatHasShrunkStaysUnlessItsMinimumGrows) {
  WindowController controller(Dynamic());
  controller.Update(0, kLate);
  ASSERT_EQ(controller.window_tokens(), 480u);
  controller.SetLimits(Limits(1024, 256, 6000), 8000, 0);
  EXPECT_EQ(controller.window_tokens(), 480u);
  controller.SetLimits(Limits(1024, 640, 6000), 8000, 0);
  EXPECT_EQ(controller.window_tokens(), 640u);
}

TEST(WindowControllerTest, HybridMovesAgainUntilHalfOfTheLongerText) {
  WindowController::Options options = Dynamic();
  options.strategy = WindowStrategy::kHybrid;
  options.switch_tokens = kLate;
  WindowController controller(options);
  controller.Update(0, kLate);
  ASSERT_EQ(controller.rule(), EvictionRule::kScoreThreshold);
  controller.SetLimits(options.limits, options.budget_tokens, kLate + 100);
  EXPECT_EQ(controller.rule(), EvictionRule::kSizeAware);
  controller.Update(0.3, kLate + 50);
  EXPECT_EQ(controller.window_tokens(), 4000u);
  EXPECT_EQ(controller.rule(), EvictionRule::kSizeAware);
  controller.Update(0, kLate + 100);
  EXPECT_EQ(controller.rule(), EvictionRule::kScoreThreshold);
  EXPECT_EQ(controller.window_tokens(), 480u);
}

}  // namespace
}  // namespace lkv
