#include "policy/pattern_detector.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "policy/window_controller.h"

namespace lkv {
namespace {

constexpr ProtectedEnds kEnds = {.sink_tokens = 16, .recent_tokens = 32};

// A lane fed with masses given per page; slots share their page's mass.
class OneLane {
 public:
  explicit OneLane(ChangeMetric metric = ChangeMetric::kJensenShannon)
      : detector_({.metric = metric, .smoothing = 0, .ends = kEnds},
                  {.n_lanes = 1, .pages_per_lane = 64}) {}

  void AddPages(int n) {
    for (; n > 0; --n) {
      detector_.AddPage(0);
      ++n_pages_;
    }
  }
  // page_mass: of the contestable pages, that is of all but the first (sinks)
  // and the last two (recent), which get a mass that would show.
  void Observe(const std::vector<float>& page_mass, int times = 1,
               uint32_t tokens_since = 1) {
    std::vector<float> mass(16 * n_pages_);
    for (uint32_t p = 0; p < n_pages_; ++p) {
      bool contestable = p >= 1 && p + 2 < n_pages_;
      // The others: never twice the same.
      float m = contestable ? page_mass[p - 1]
                            : static_cast<float>((13 * ++n_calls_) % 97);
      std::fill_n(mass.begin() + 16 * p, 16, m / 16);
    }
    for (; times > 0; --times) {
      detector_.Observe({.lane = 0,
                         .query_pos = 16 * n_pages_ - 1,
                         .tokens_since = tokens_since,
                         .n_slots = 16 * n_pages_,
                         .mass_max = nullptr,
                         .mass_mean = mass.data()});
    }
  }
  void RemovePage(uint32_t index) {
    detector_.RemovePage(0, index);
    --n_pages_;
  }
  double Change() {
    detector_.Evaluate(0);
    return detector_.Update();
  }

 private:
  PatternDetector detector_;
  uint32_t n_pages_ = 0;
  int n_calls_ = 0;
};

TEST(PatternDetectorTest, SinksAndRecentTokensDoNotCount) {
  OneLane lane;
  lane.AddPages(6);
  for (int i = 0; i < 50; ++i) lane.Observe({1, 2, 3});
  EXPECT_LT(lane.Change(), 1e-4);
}

TEST(PatternDetectorTest, JensenShannonOfTheTwoAveragesIsTheFormulas) {
  OneLane lane;
  lane.AddPages(5);
  lane.Observe({1, 0}, 2000);  // both averages settle
  lane.Observe({0, 1}, 8);     // fast: half moved; slow: 1 - 2^(-1/8) moved
  double slow_moved = 1 - std::exp2(-8.0 / 64);
  auto smooth = [](double share) { return (share + 1e-4) / (1 + 2e-4); };
  double p[2] = {smooth(0.5), smooth(0.5)};
  double q[2] = {smooth(1 - slow_moved), smooth(slow_moved)};
  double expected = 0;
  for (int i = 0; i < 2; ++i) {
    double m = (p[i] + q[i]) / 2;
    expected += (p[i] * std::log(p[i] / m) + q[i] * std::log(q[i] / m)) / 2;
  }
  EXPECT_GT(expected, 0.05);
  EXPECT_NEAR(lane.Change(), expected, 1e-4);
}

TEST(PatternDetectorTest, KullbackLeiblerIsFastAgainstSlow) {
  OneLane lane(ChangeMetric::kKullbackLeibler);
  lane.AddPages(5);
  lane.Observe({1, 0}, 2000);
  lane.Observe({0, 1}, 8);
  double slow_moved = 1 - std::exp2(-8.0 / 64);
  double expected =
      0.5 * std::log(0.5 / (1 - slow_moved)) + 0.5 * std::log(0.5 / slow_moved);
  EXPECT_NEAR(lane.Change(), expected, 2e-3);
}

TEST(PatternDetectorTest, AFullSwitchIsAtMostLn2) {
  OneLane lane;
  lane.AddPages(5);
  lane.Observe({1, 0}, 5000);
  lane.Observe({0, 1}, 1, 60);
  double change = lane.Change();
  EXPECT_GT(change, 0.1);
  EXPECT_LE(change, std::log(2.0));
}

TEST(PatternDetectorTest, AgesCountTokens) {
  OneLane each;
  OneLane sampled;
  each.AddPages(5);
  sampled.AddPages(5);
  each.Observe({1, 2}, 100);
  sampled.Observe({1, 2}, 100);
  each.Observe({2, 1}, 16);
  sampled.Observe({2, 1}, 2, 8);
  double change = each.Change();
  EXPECT_GT(change, 0.005);
  EXPECT_NEAR(sampled.Change(), change, 1e-5);
}

TEST(PatternDetectorTest, APageThatBecomesContestableIsNoChange) {
  OneLane lane;
  lane.AddPages(6);
  lane.Observe({1, 2, 3}, 300);
  lane.AddPages(1);
  lane.Observe({1, 2, 3, 2});  // the newcomer gets the mean
  EXPECT_LT(lane.Change(), 1e-4);
}

TEST(PatternDetectorTest, AnOutlyingFirstLookAtAPageIsNotItsHabit) {
  OneLane lane;
  lane.AddPages(6);
  lane.Observe({1, 2, 3}, 300);
  lane.AddPages(1);
  lane.Observe({1, 2, 3, 20});
  lane.Observe({1, 2, 3, 2}, 30);
  EXPECT_LT(lane.Change(), 1e-3);
}

TEST(PatternDetectorTest, ARemovedPageTakesItsAveragesAlong) {
  OneLane lane;
  lane.AddPages(7);
  lane.Observe({1, 5, 2, 3}, 300);
  lane.RemovePage(2);
  EXPECT_LT(lane.Change(), 1e-4);
  lane.Observe({1, 2, 3}, 4);
  EXPECT_LT(lane.Change(), 1e-4);
}

TEST(PatternDetectorTest, OnePageIsNoDistribution) {
  OneLane lane;
  lane.AddPages(4);
  lane.Observe({1});
  EXPECT_EQ(lane.Change(), 0);
}

TEST(PatternDetectorTest, TheMedianOfLayersFromTheThirdCounts) {
  // Five layers of one head: the first two and one of the last three change.
  PatternDetector detector({.smoothing = 0, .ends = kEnds},
                           {.n_lanes = 5, .pages_per_lane = 8});
  for (uint32_t lane = 0; lane < 5; ++lane) {
    for (int p = 0; p < 5; ++p) detector.AddPage(lane);
    auto observe = [&](float a, float b, int times) {
      std::vector<float> mass(80, a / 16);
      std::fill_n(mass.begin() + 32, 16, b / 16);
      for (; times > 0; --times) {
        detector.Observe({.lane = lane,
                          .query_pos = 79,
                          .n_slots = 80,
                          .mass_mean = mass.data()});
      }
    };
    observe(1, 0, 500);
    if (lane != 2 && lane != 3) observe(0, 1, 8);
    detector.Evaluate(lane);
  }
  EXPECT_LT(detector.Update(), 1e-5);
}

TEST(PatternDetectorTest, SmoothingKeepsSevenTenthsOfTheOldValue) {
  PatternDetector detector({.smoothing = 0.7, .ends = kEnds},
                           {.n_lanes = 1, .pages_per_lane = 8});
  for (int p = 0; p < 5; ++p) detector.AddPage(0);
  std::vector<float> mass(80, 0.0f);
  LaneObservation seen = {
      .lane = 0, .query_pos = 79, .n_slots = 80, .mass_mean = mass.data()};
  mass[16] = 1;
  for (int i = 0; i < 500; ++i) detector.Observe(seen);
  detector.Evaluate(0);
  EXPECT_NEAR(detector.Update(), 0, 1e-6);
  mass[16] = 0;
  mass[32] = 1;
  for (int i = 0; i < 8; ++i) detector.Observe(seen);
  detector.Evaluate(0);
  double first = detector.Update();
  double second = detector.Update();
  EXPECT_NEAR(second / first, (1 - 0.7 * 0.7) / (1 - 0.7), 1e-4);
}

// A text as its attention shows it: every lane prefers some pages (log-normal
// weights, sigma 1.5: a tenth of the pages has half the mass), every query
// varies around that, neighbouring queries alike (correlation 0.87).
class SyntheticText {
 public:
  static constexpr uint32_t kLanes = 12;
  static constexpr uint32_t kPages = 400;

  SyntheticText(uint32_t seed, const WindowController::Options& options)
      : random_(seed),
        detector_({.smoothing = 0.7, .ends = {4, 128}, .n_kv_heads = 3},
                  {.n_lanes = kLanes, .pages_per_lane = kPages}),
        controller_(options),
        preference_(kLanes * kPages),
        variation_(kLanes * kPages) {
    NewTopic();
  }

  // Attention moves to other pages.
  void NewTopic() {
    for (float& p : preference_) p = std::exp(1.5f * normal_(random_));
  }
  void set_variation(float sigma) { sigma_ = sigma; }

  void Read(uint32_t n_tokens) {
    for (; n_tokens > 0; --n_tokens) Step();
  }

  uint32_t window() const { return controller_.window_tokens(); }
  double change() const { return detector_.change(); }
  uint32_t n_moves() const { return n_moves_; }

 private:
  void Step() {
    const uint32_t n_pages = n_tokens_ / 16 + 1;
    std::vector<float> mass(16 * n_pages);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (n_tokens_ % 16 == 0) detector_.AddPage(lane);
      float* variation = variation_.data() + lane * kPages;
      const float* preference = preference_.data() + lane * kPages;
      for (uint32_t p = 0; p < n_pages; ++p) {
        variation[p] =
            0.87f * variation[p] + std::sqrt(1 - 0.87f * 0.87f) * Draw();
        float m = preference[p] * std::exp(sigma_ * variation[p]);
        std::fill_n(mass.begin() + 16 * p, 16, m);
      }
      detector_.Observe({.lane = lane,
                         .query_pos = n_tokens_,
                         .n_slots = n_tokens_ + 1,
                         .mass_mean = mass.data()});
      if (n_tokens_ % 16 == lane % 16) detector_.Evaluate(lane);
    }
    ++n_tokens_;
    uint32_t before = controller_.window_tokens();
    controller_.Update(detector_.Update(), n_tokens_);
    if (controller_.window_tokens() != before) ++n_moves_;
  }

  // Normal draws are most of the test's time; a table of them will do.
  float Draw() {
    if (table_.empty()) {
      for (int i = 0; i < 65537; ++i) table_.push_back(normal_(random_));
    }
    at_ = (at_ + 1 + (random_() & 7)) % table_.size();
    return table_[at_];
  }

  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  std::vector<float> table_;
  size_t at_ = 0;
  PatternDetector detector_;
  WindowController controller_;
  std::vector<float> preference_;  // [kLanes, kPages]
  std::vector<float> variation_;   // [kLanes, kPages]
  float sigma_ = 0.6f;
  uint32_t n_tokens_ = 0;
  uint32_t n_moves_ = 0;
};

WindowController::Options SmallWindow() {
  return {.limits = {.base_tokens = 512, .min_tokens = 128, .max_tokens = 2048},
          .budget_tokens = 4096,
          .change_threshold = CacheOptions().change_threshold};
}

TEST(PatternWindowTest, ChangeIsLowInOneTopicAndPeaksWhenItTurns) {
  const double threshold = CacheOptions().change_threshold;
  for (uint32_t seed : {1u, 2u, 3u}) {
    SyntheticText text(seed, SmallWindow());
    text.Read(800);
    double highest = 0;
    for (int i = 0; i < 500; ++i) {
      text.Read(1);
      highest = std::max(highest, text.change());
    }
    EXPECT_LT(highest, threshold * 0.6) << seed;
    text.NewTopic();
    double peak = 0;
    for (int i = 0; i < 64; ++i) {
      text.Read(1);
      peak = std::max(peak, text.change());
    }
    EXPECT_GT(peak, threshold * 3 / 2) << seed;
  }
}

TEST(PatternWindowTest, StartsLarge) {
  SyntheticText text(1, SmallWindow());
  text.Read(1024);
  EXPECT_EQ(text.window(), 2048u);
}

// A repeated block is attended alike every time: hardly any variation.
TEST(PatternWindowTest, ShrinksOnARepeatedBlock) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    SyntheticText text(seed, SmallWindow());
    for (int topic = 0; topic < 24; ++topic) {
      text.NewTopic();
      text.Read(50);
    }
    uint32_t before = text.window();
    EXPECT_GT(before, 512u) << seed;
    text.set_variation(0.05f);
    text.Read(400);
    EXPECT_LT(text.window(), 300u) << seed;
  }
}

TEST(PatternWindowTest, GrowsAtAPlantedTopicSwitch) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    SyntheticText text(seed, SmallWindow());
    text.Read(1500);
    uint32_t before = text.window();
    EXPECT_LT(before, 512u) << seed;
    text.NewTopic();
    uint32_t largest = 0;
    for (int i = 0; i < 96; ++i) {
      text.Read(1);
      largest = std::max(largest, text.window());
    }
    EXPECT_GT(largest, 2 * before) << seed;
    text.Read(500);  // the new topic has become the habit
    EXPECT_LT(text.window(), 512u) << seed;
  }
}

TEST(PatternWindowTest, DoesNotOscillateOnAStationaryText) {
  for (float variation : {0.1f, 0.6f, 1.0f}) {
    SyntheticText text(4, SmallWindow());
    text.set_variation(variation);
    text.Read(1500);
    uint32_t settled = text.window();
    uint32_t n_moves = text.n_moves();
    for (int i = 0; i < 3000; ++i) {
      text.Read(1);
      ASSERT_LE(text.window(), settled * 5 / 4) << variation;
      ASSERT_GE(text.window(), settled * 3 / 4) << variation;
    }
    EXPECT_LE(text.n_moves() - n_moves, 3u) << variation;
  }
}

}  // namespace
}  // namespace lkv
