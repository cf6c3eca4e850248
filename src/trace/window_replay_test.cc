// What the window does along texts whose turns and repeats are known, under
// both laws.
#include "trace/window_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "testing/memory_file_system.h"
#include "trace/synthetic_trace.h"

namespace lkv {
namespace {

constexpr uint32_t kTopicTokens = 512;

class WindowReplayTest : public testing::TestWithParam<WindowLaw> {
 protected:
  Result<std::vector<double>> TryChange(
      const std::function<bool()>& cancelled = {}) {
    const auto trace = TraceReader::Open(files_, "t");
    if (!trace.ok()) return trace.status();
    const auto team = ThreadTeam::Create(2);
    EXPECT_TRUE(team.ok());
    return ReplayPatternChange(*trace, cache_, **team, {}, cancelled);
  }
  std::vector<double> ChangeAlong(SyntheticTraceOptions options) {
    options.n_needles = 0;
    EXPECT_TRUE(WriteSyntheticTrace(files_, "t", options).ok());
    const auto change = TryChange();
    EXPECT_TRUE(change.ok()) << change.status().message();
    EXPECT_EQ(change->size(), options.n_steps);
    return *change;
  }
  // Under a budget of half the text, without window keys.
  WindowController::Options OptionsUnder(WindowLaw law) {
    cache_.window_law = law;
    return ReplayedWindow(cache_, 0.5, SyntheticTraceOptions().n_steps);
  }
  std::vector<uint32_t> WindowAlong(const SyntheticTraceOptions& options) {
    return ReplayWindow(ChangeAlong(options), OptionsUnder(GetParam()));
  }
  uint32_t base_tokens() { return OptionsUnder(GetParam()).limits.base_tokens; }

  MemoryFileSystem files_;
  CacheOptions cache_;
};

TEST_P(WindowReplayTest, NeverReversesOnAStationaryText) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const WindowSummary window =
        SummarizeWindow(WindowAlong({.topic_tokens = 0, .seed = seed}));
    EXPECT_EQ(window.n_moves, 1u) << "down, when it may";
    EXPECT_EQ(window.n_reversals, 0u);
  }
}

TEST_P(WindowReplayTest, ShrinksWhereTheTextRepeatsAShortBlock) {
  for (uint32_t block_tokens : {64u, 128u}) {
    const std::vector<uint32_t> window =
        WindowAlong({.topic_tokens = 0, .block_tokens = block_tokens});
    EXPECT_EQ(window.front(), 4 * base_tokens());
    // As far as each law goes.
    const uint32_t least = GetParam() == WindowLaw::kSymmetric
                               ? base_tokens() / 2
                               : base_tokens() * 3 / 2;
    EXPECT_LE(window.back(), least) << "blocks of " << block_tokens;
  }
}

// Attention that walks along the last copy of a block is a change of pattern as
// soon as the copy is too far behind to be among the newest tokens.
TEST_P(WindowReplayTest, StaysWideWhereALongBlockIsRepeated) {
  const std::vector<uint32_t> window =
      WindowAlong({.topic_tokens = 0, .block_tokens = 256});
  EXPECT_GE(window.back(), base_tokens() * 3 / 2);
}

TEST_P(WindowReplayTest, GrowsAtEveryTurnAndNarrowsBehindIt) {
  const std::vector<uint32_t> window =
      WindowAlong({.topic_tokens = kTopicTokens});
  for (uint32_t turn = 2 * kTopicTokens; turn < window.size();
       turn += kTopicTokens) {
    const WindowSummary topic =
        SummarizeWindow(std::span(window).subspan(turn, kTopicTokens));
    EXPECT_GT(topic.first_max_tokens, window[turn - 1]) << "turn at " << turn;
    EXPECT_LT(topic.end_tokens, topic.first_max_tokens);
    // Where a turn takes the window with each law.
    const uint32_t widest = GetParam() == WindowLaw::kSymmetric
                                ? 4 * base_tokens()
                                : base_tokens() * 8 / 5;
    EXPECT_NEAR(topic.first_max_tokens, widest, widest / 16.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Laws, WindowReplayTest,
                         testing::Values(WindowLaw::kSymmetric,
                                         WindowLaw::kSource),
                         [](const auto& info) {
                           return info.param == WindowLaw::kSymmetric
                                      ? "Symmetric"
                                      : "Source";
                         });

// A change is a fraction of a nat, where sigma is a straight line of slope 1/4
// around 1/2: a turn that takes the symmetric window from half the base to four
// times that moves the source's by a tenth, and nothing takes it to the base.
TEST_F(WindowReplayTest, TheSourcesLawHardlyMoves) {
  const std::vector<double> change =
      ChangeAlong({.topic_tokens = kTopicTokens});
  const auto range = [&](WindowLaw law) {
    return SummarizeWindow(
        std::span<const uint32_t>(ReplayWindow(change, OptionsUnder(law)))
            .subspan(2 * kTopicTokens));
  };
  const WindowSummary source = range(WindowLaw::kSource);
  const uint32_t base = OptionsUnder(WindowLaw::kSource).limits.base_tokens;
  EXPECT_GT(source.min_tokens, base * 14 / 10);
  EXPECT_LE(source.max_tokens, source.min_tokens * 11 / 10);
  const WindowSummary symmetric = range(WindowLaw::kSymmetric);
  EXPECT_LT(symmetric.min_tokens, base * 6 / 10);
  EXPECT_GT(symmetric.max_tokens, 6 * symmetric.min_tokens);
}

TEST_F(WindowReplayTest, LimitsComeFromTheBudgetUnlessWindowKeysAreGiven) {
  const WindowController::Options free = ReplayedWindow(cache_, 0.25, 4096);
  EXPECT_EQ(free.budget_tokens, 1024u);
  EXPECT_EQ(free.limits.max_tokens, 1024u);
  EXPECT_EQ(free.limits.base_tokens, 256u);
  EXPECT_EQ(free.limits.min_tokens, 64u);
  cache_.base_window_tokens = 512;
  const WindowController::Options given = ReplayedWindow(cache_, 0.25, 4096);
  EXPECT_EQ(given.limits.base_tokens, 512u);
  EXPECT_EQ(given.limits.max_tokens, 768u) << "1.5 times the base";
  EXPECT_EQ(given.limits.min_tokens, 128u);
}

TEST_F(WindowReplayTest, ASummaryCountsMovesAndReversals) {
  std::vector<uint32_t> window(200, 64);
  window[1] = 96;   // up
  window[2] = 128;  // up to the end but for
  std::fill(window.begin() + 3, window.end(), 128);
  window[150] = 160;   // up and
  window.back() = 32;  // after the way back, down once more
  const WindowSummary summary = SummarizeWindow(window);
  EXPECT_EQ(summary.n_moves, 5u);
  EXPECT_EQ(summary.n_reversals, 1u);
  EXPECT_EQ(summary.min_tokens, 32u);
  EXPECT_EQ(summary.max_tokens, 160u);
  EXPECT_EQ(summary.first_max_tokens, 128u);
  EXPECT_EQ(summary.end_tokens, 32u);
  EXPECT_DOUBLE_EQ(summary.mean_tokens,
                   (64 + 96 + 196 * 128 + 160 + 32) / 200.0);
}

TEST_F(WindowReplayTest, SaysWhatReadingSaysAndStopsOnRequest) {
  ASSERT_TRUE(
      WriteSyntheticTrace(files_, "t", {.n_steps = 256, .n_needles = 0}).ok());
  EXPECT_EQ(TryChange([] { return true; }).status().code(),
            StatusCode::kCancelled);
  auto& bytes = files_.files["t"];
  bytes[bytes.size() / 2] ^= 1;
  EXPECT_EQ(TryChange().status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace lkv
