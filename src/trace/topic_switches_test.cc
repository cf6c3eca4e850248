// Whether the pattern detector finds the turns of a text, on texts whose turns
// are known.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "policy/lane_turn.h"
#include "policy/pattern_detector.h"
#include "trace/synthetic_trace.h"

namespace lkv {
namespace {

// The default of the option change_threshold.
const double kThreshold = CacheOptions().change_threshold;
// A turn is found by a rise within so many tokens.
constexpr uint32_t kReachTokens = 64;
// Before, hardly a page is contestable.
constexpr uint32_t kFirstTokens = 256;

// Steps at which the change of pattern rises above the threshold.
std::vector<uint32_t> FindRises(const SyntheticTraceOptions& options) {
  const uint32_t n_lanes = options.n_layers * options.n_kv_heads;
  PatternDetector detector(
      {.n_kv_heads = options.n_kv_heads},
      {.n_lanes = n_lanes, .pages_per_lane = PagesOf(options.n_steps)});
  const SyntheticText text(options);
  std::vector<uint32_t> rises;
  std::vector<float> mass(options.n_steps);
  bool is_high = false;
  for (uint32_t step = 0; step < options.n_steps; ++step) {
    for (uint32_t lane = 0; lane < n_lanes; ++lane) {
      if (step % kPageTokens == 0) detector.AddPage(lane);
      text.Attend(lane, step, mass.data());
      detector.Observe({.lane = lane,
                        .query_pos = step,
                        .tokens_since = 1,
                        .n_slots = step + 1,
                        .mass_max = mass.data(),
                        .mass_mean = mass.data()});
      if (HasTurn(lane, step + 1, 1)) detector.Evaluate(lane);
    }
    const double change = detector.Update();
    if (!is_high && change > kThreshold && step >= kFirstTokens) {
      rises.push_back(step);
    }
    is_high = change > kThreshold;
  }
  return rises;
}

struct Score {
  uint32_t n_turns = 0, n_found = 0, n_rises = 0, n_right = 0;

  double recall() const { return static_cast<double>(n_found) / n_turns; }
  double precision() const { return static_cast<double>(n_right) / n_rises; }
};

void AddText(const SyntheticTraceOptions& options, Score& score) {
  const std::vector<uint32_t> rises = FindRises(options);
  const auto follows = [&](uint32_t turn, uint32_t rise) {
    return rise >= turn && rise < turn + kReachTokens;
  };
  for (uint32_t turn = options.topic_tokens;
       turn + kReachTokens <= options.n_steps; turn += options.topic_tokens) {
    if (turn < kFirstTokens) continue;
    ++score.n_turns;
    const bool found =
        std::any_of(rises.begin(), rises.end(),
                    [&](uint32_t rise) { return follows(turn, rise); });
    score.n_found += found ? 1 : 0;
  }
  for (uint32_t rise : rises) {
    ++score.n_rises;
    score.n_right += follows(rise - rise % options.topic_tokens, rise) ? 1 : 0;
  }
}

TEST(TopicSwitchesTest, AreFoundWithinSixtyFourTokensAndNothingElseIs) {
  Score score;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    for (uint32_t topic_tokens : {320u, 512u, 700u}) {
      AddText({.n_steps = 2048,
               .topic_tokens = topic_tokens,
               .n_needles = 0,
               .seed = seed},
              score);
    }
  }
  RecordProperty("recall", std::to_string(score.recall()));
  RecordProperty("precision", std::to_string(score.precision()));
  EXPECT_GT(score.n_turns, 50u);
  EXPECT_GE(score.recall(), 0.9);
  EXPECT_GE(score.precision(), 0.9)
      << score.n_right << " of " << score.n_rises << " rises";
}

TEST(TopicSwitchesTest, ATextOfOneTopicHasNone) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    EXPECT_TRUE(
        FindRises(
            {.n_steps = 2048, .topic_tokens = 0, .n_needles = 0, .seed = seed})
            .empty())
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace lkv
