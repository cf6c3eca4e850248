// Windows of texts, and what a small model of random weights says on them.
#include "eval/tuning_measure.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "testing/random_model.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

TokenizedText TextOf(const std::string& name, int32_t n_tokens) {
  TokenizedText text{name, {}};
  for (int32_t i = 0; i < n_tokens; ++i) text.tokens.push_back(i);
  return text;
}

TuningSetup SmallSetup() {
  TuningSetup setup;
  setup.context_tokens = 8;
  setup.forced_tokens = 1;  // windows of 10 tokens
  return setup;
}

TEST(CutIntoWindowsTest, WindowsDoNotOverlapAndAreAllOfTheText) {
  const TokenizedText text = TextOf("a", 57);
  const auto windows = CutIntoWindows({&text, 1}, SmallSetup(), 100, 1);
  ASSERT_TRUE(windows.ok());
  ASSERT_EQ(windows->size(), 5u);
  std::set<int32_t> tokens;
  for (const TokenizedText& window : *windows) {
    ASSERT_EQ(window.tokens.size(), 10u);
    EXPECT_EQ(window.name, "a at " + std::to_string(window.tokens.front()));
    EXPECT_EQ(window.tokens.back(), window.tokens.front() + 9);
    tokens.insert(window.tokens.begin(), window.tokens.end());
  }
  EXPECT_EQ(tokens.size(), 50u);
}

TEST(CutIntoWindowsTest, TextsTakeTurns) {
  const TokenizedText texts[] = {TextOf("a", 100), TextOf("b", 20)};
  const auto windows = CutIntoWindows(texts, SmallSetup(), 3, 1);
  ASSERT_TRUE(windows.ok());
  std::string order;
  for (const TokenizedText& window : *windows) order += window.name[0];
  EXPECT_EQ(order, "ababa");
}

TEST(CutIntoWindowsTest, TheSeedDecidesWhichWindowsComeFirst) {
  const TokenizedText text = TextOf("a", 1000);
  const auto names = [&](uint64_t seed) {
    std::string all;
    const auto windows = CutIntoWindows({&text, 1}, SmallSetup(), 4, seed);
    for (const TokenizedText& window : *windows) all += window.name + ",";
    return all;
  };
  EXPECT_EQ(names(1), names(1));
  EXPECT_NE(names(1), names(2));
}

TEST(CutIntoWindowsTest, ATextShorterThanAWindowIsNamedWithTheRemedy) {
  const TokenizedText texts[] = {TextOf("a", 100), TextOf("short.txt", 9)};
  const auto windows = CutIntoWindows(texts, SmallSetup(), 3, 1);
  EXPECT_EQ(windows.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(windows.status().message(),
            "short.txt: has 9 tokens, fewer than a window of 10; give a longer "
            "text or a shorter context");
}

class MeasureWithModelTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>();
    WriteRandomModel(folder_->File("model.gguf"), RandomModelOf("llama"));
    EngineOptions options;
    options.model_path = folder_->File("model.gguf");
    options.activations = ActivationPrecision::kHigh;
    auto engine = Engine::Open(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = *std::move(engine);
  }
  static void TearDownTestSuite() {
    engine_.reset();
    folder_.reset();
  }

  MeasureWithModelTest() {
    setup_.context_tokens = 300;
    setup_.forced_tokens = 10;
    setup_.base.recent_tokens = 32;
    setup_.space = MakeTuningSpace([](std::string_view) { return false; });
    TokenizedText window{"text at 0", {}};
    for (uint32_t i = 0; i <= setup_.window_tokens(); ++i) {
      window.tokens.push_back(static_cast<int32_t>(i * 7919 % 311));
    }
    windows_.push_back(std::move(window));
  }
  std::vector<TuningFigures> Measure(
      const std::vector<TuningCandidate>& candidates) {
    const auto measure =
        MeasureWithModel(*engine_, windows_, setup_, {}, cancelled_);
    auto figures = measure(0, candidates);
    EXPECT_TRUE(figures.ok()) << figures.status().message();
    return figures.ok() ? *std::move(figures) : std::vector<TuningFigures>();
  }
  // The default with choice `choice` on the axis whose labels begin so.
  TuningCandidate With(std::string_view label, double share) const {
    std::vector<uint32_t> choices(setup_.space.size(), 0);
    for (size_t axis = 0; axis < choices.size(); ++axis) {
      for (uint32_t i = 0; i < setup_.space[axis].size(); ++i) {
        if (setup_.space[axis][i].label == label) choices[axis] = i;
      }
    }
    return {choices, share};
  }

  static std::unique_ptr<TempFolder> folder_;
  static std::unique_ptr<Engine> engine_;
  TuningSetup setup_;
  std::vector<TokenizedText> windows_;
  std::function<bool()> cancelled_;
};
std::unique_ptr<TempFolder> MeasureWithModelTest::folder_;
std::unique_ptr<Engine> MeasureWithModelTest::engine_;

TEST_F(MeasureWithModelTest, ResidentBytesAreThoseOfTheBudget) {
  for (const PromptReading reading :
       {PromptReading::kWithinBudget, PromptReading::kWhole}) {
    setup_.base.reading = reading;
    const auto figures = Measure({With("", 0.4), With("", 0.8)});
    ASSERT_EQ(figures.size(), 2u);
    const uint64_t full_bytes =
        setup_.window_tokens() *
        engine_->architecture().kv_shape().bytes_per_token(KvType::kF16);
    for (size_t i = 0; i < 2; ++i) {
      const double budget = (i == 0 ? 0.4 : 0.8) * full_bytes;
      EXPECT_EQ(figures[i].full_bytes, full_bytes);
      EXPECT_LE(figures[i].resident_bytes_max, budget);
      EXPECT_GT(figures[i].resident_bytes_mean, 0.7 * budget);
      EXPECT_LE(figures[i].resident_bytes_mean, figures[i].resident_bytes_max);
      EXPECT_GT(figures[i].kl_mean, 0);
    }
  }
}

TEST_F(MeasureWithModelTest, FiguresDoNotDependOnWhatIsMeasuredBeside) {
  for (const PromptReading reading :
       {PromptReading::kWithinBudget, PromptReading::kWhole}) {
    setup_.base.reading = reading;
    const std::vector<TuningCandidate> candidates = {
        With("", 0.4), With("", 0.8), With("unit page", 0.4),
        With("dynamic window, base 1/2 of the budget", 0.6),
        With("dynamic window, base 1/2 of the budget", 0.8)};
    const auto together = Measure(candidates);
    ASSERT_EQ(together.size(), candidates.size());
    for (size_t i = 0; i < candidates.size(); ++i) {
      const auto alone = Measure({candidates[i]});
      EXPECT_EQ(alone[0].kl_mean, together[i].kl_mean) << i;
      EXPECT_EQ(alone[0].resident_bytes_mean, together[i].resident_bytes_mean);
    }
    EXPECT_NE(together[0].kl_mean, together[2].kl_mean);
  }
}

TEST_F(MeasureWithModelTest, AWindowBelowTheBudgetHoldsLess) {
  const auto figures = Measure(
      {With("", 0.8), With("dynamic window, base 1/2 of the budget", 0.8)});
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_LT(figures[1].resident_bytes_mean,
            0.9 * figures[0].resident_bytes_mean);
}

TEST_F(MeasureWithModelTest, BeingStoppedIsPassedOn) {
  cancelled_ = [] { return true; };
  const auto measure =
      MeasureWithModel(*engine_, windows_, setup_, {}, cancelled_);
  const TuningCandidate candidate = With("", 0.5);
  EXPECT_EQ(measure(0, {&candidate, 1}).status().code(),
            StatusCode::kCancelled);
}

TEST_F(MeasureWithModelTest, WithoutANoiseFloorNoneIsMeasured) {
  ClosedLoopOptions options;
  options.policies = {"lru"};
  const auto share = [](double of_window) {
    return Budget{.kind = Budget::Kind::kShare, .share = of_window};
  };
  options.budgets = {share(0.5)};
  options.candidates = {{"pages", setup_.base, {share(0.4), share(0.6)}}};
  options.context_tokens = setup_.context_tokens;
  options.forced_tokens = setup_.forced_tokens;
  options.windows_per_text = 1;
  options.cache = setup_.base;
  for (const bool noise_floor : {true, false}) {
    options.noise_floor = noise_floor;
    uint64_t n_done = 0, n_all = 0;
    const auto report = RunClosedLoop(*engine_, windows_, options,
                                      [&](uint64_t done, uint64_t all) {
                                        n_done = done;
                                        n_all = all;
                                      },
                                      {});
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->noise_floor.size(), noise_floor ? 1u : 0u);
    EXPECT_EQ(n_done, noise_floor ? 5u : 4u);
    EXPECT_EQ(n_all, n_done);
    ASSERT_EQ(report->rows.size(), 3u);
    EXPECT_EQ(report->rows[0].policy, "lru");
    EXPECT_EQ(report->rows[1].policy, "pages");
    EXPECT_EQ(report->rows[2].budget, share(0.6));
  }
}

}  // namespace
}  // namespace lkv
