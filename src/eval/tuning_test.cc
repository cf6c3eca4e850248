#include "eval/tuning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

namespace lkv {
namespace {

constexpr double kFullBytes = 1e6;

// Figures of a made-up model. log KL falls by 8 per unit of memory held and
// moves by what each choice adds; windows differ by more than choices do.
struct World {
  // Added to log KL by (axis, choice); absent: nothing.
  std::map<std::pair<size_t, uint32_t>, double> kl_effects;
  std::map<std::pair<size_t, uint32_t>, double> memory_factors;
  std::map<std::pair<size_t, uint32_t>, double> agreement_effects;
  double noise = 0;  // standard deviation in log KL, per run
  uint64_t seed = 1;

  TuningFigures Of(const TuningCandidate& candidate, uint32_t window) const {
    double log_kl = -2 + 0.5 * std::sin(window);
    double memory = candidate.share, agreement = 0;
    uint64_t name = seed * 1000 + window;
    for (size_t axis = 0; axis < candidate.choices.size(); ++axis) {
      const std::pair<size_t, uint32_t> key{axis, candidate.choices[axis]};
      if (kl_effects.contains(key)) log_kl += kl_effects.at(key);
      if (memory_factors.contains(key)) memory *= memory_factors.at(key);
      if (agreement_effects.contains(key)) {
        agreement += agreement_effects.at(key);
      }
      name = name * 31 + candidate.choices[axis];
    }
    std::mt19937_64 random(name * 1009 +
                           static_cast<uint64_t>(candidate.share * 4096));
    log_kl += -8 * memory + noise * std::normal_distribution<>()(random);
    const double kl = std::exp(log_kl);
    return {.kl_mean = kl,
            .top1_agreement = 1 - 0.4 * std::sqrt(kl) + agreement,
            .resident_bytes_mean = memory * kFullBytes,
            .resident_bytes_max = static_cast<uint64_t>(memory * kFullBytes),
            .full_bytes = static_cast<uint64_t>(kFullBytes)};
  }
};

// Runs the search on a world with a clock that only runs move on.
struct Laboratory {
  World world;
  double run_s = 0;  // what a run costs, that of the full cache too
  std::function<Status(uint32_t n_calls)> fail = {};

  std::vector<std::pair<TuningCandidate, uint32_t>> measured = {};
  double now_s = 0;
  uint32_t n_calls = 0;

  Result<TuningResult> Tune(const TuningProblem& problem) {
    return lkv::Tune(
        problem,
        [&](uint32_t window, std::span<const TuningCandidate> candidates)
            -> Result<std::vector<TuningFigures>> {
          ++n_calls;
          now_s += run_s * static_cast<double>(candidates.size() + 1);
          if (fail) {
            if (Status s = fail(n_calls); !s.ok()) return s;
          }
          std::vector<TuningFigures> figures;
          for (const TuningCandidate& candidate : candidates) {
            measured.emplace_back(candidate, window);
            figures.push_back(world.Of(candidate, window));
          }
          return figures;
        },
        [&] { return now_s; });
  }
};

TuningProblem MemoryProblem() {
  return {.n_choices = {3, 2, 4},
          .shares = {0.25, 0.5, 0.75},
          .goal = {TuningGoal::Kind::kMemory, 0.25},
          .n_windows = 12,
          .limit_s = 1e9};
}

TuningProblem AgreementProblem(double agreement) {
  TuningProblem problem = MemoryProblem();
  problem.goal = {TuningGoal::Kind::kAgreement, agreement};
  return problem;
}

const TuningTrial& BestOf(const TuningResult& result) {
  return result.trials[result.best];
}

TEST(TuneTest, FindsThePlantedChoicesOfSeveralAxes) {
  Laboratory laboratory;
  laboratory.world.kl_effects = {
      {{0, 1}, 0.2}, {{0, 2}, -0.7}, {{1, 1}, -0.4}, {{2, 3}, 0.5}};
  laboratory.world.noise = 0.1;
  const auto result = laboratory.Tune(MemoryProblem());
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(BestOf(*result).candidate,
            (TuningCandidate{.choices = {2, 1, 0}, .share = 0.25}));
  EXPECT_TRUE(result->is_reached);
  ASSERT_TRUE(result->duel.has_value());
  EXPECT_TRUE(result->duel->is_won);
  EXPECT_NEAR(result->duel->kl_ratio, std::exp(-1.1), 0.05);
  EXPECT_LT(result->duel->kl_ratio_ci95->high, 1);
  EXPECT_EQ(result->end, TuningResult::End::kDone);
}

TEST(TuneTest, WhatIsBetterOnlyByChanceDoesNotReplaceTheDefault) {
  uint32_t n_challenged = 0, n_won = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Laboratory laboratory;
    laboratory.world.noise = 0.3;
    laboratory.world.seed = seed;
    const auto result = laboratory.Tune(MemoryProblem());
    ASSERT_TRUE(result.ok());
    const bool is_won = result->duel && result->duel->is_won;
    n_challenged += result->duel ? 1 : 0;
    n_won += is_won ? 1 : 0;
    EXPECT_EQ(
        BestOf(*result).candidate.choices != std::vector<uint32_t>({0, 0, 0}),
        is_won);
  }
  // On three windows one of six settings nearly always looks better.
  EXPECT_GE(n_challenged, 30u);
  EXPECT_LE(n_won, 4u);  // one in 40 expected, more of few windows
}

TEST(TuneTest, FewerThanFiveWindowsOfItsOwnJudgeNobody) {
  for (const auto& [n_windows, is_won] :
       {std::pair{1u, false}, {6u, false}, {8u, true}}) {
    Laboratory laboratory;
    laboratory.world.kl_effects = {{{0, 1}, -2.0}};
    TuningProblem problem = MemoryProblem();
    problem.n_windows = n_windows;
    const auto result = laboratory.Tune(problem);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->duel && result->duel->is_won, is_won) << n_windows;
    EXPECT_EQ(BestOf(*result).candidate.choices[0], is_won ? 1u : 0u);
  }
}

TEST(TuneTest, WindowsThatJudgeHadNoPartInTheChoice) {
  Laboratory laboratory;
  laboratory.world.kl_effects = {{{0, 2}, -1.0}};
  const auto result = laboratory.Tune(MemoryProblem());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->n_choosing, 3u);
  EXPECT_EQ(result->windows,
            (std::vector<uint32_t>{3, 4, 5, 6, 7, 8, 9, 10, 11}));
  for (const TuningTrial& trial : result->trials) {
    if (trial.candidate.choices == std::vector<uint32_t>({0, 1, 0})) {
      EXPECT_EQ(trial.WindowsOf(12), trial.WindowsOf(result->n_choosing));
      EXPECT_TRUE(trial.kl_ratio.has_value());
    }
  }
}

TEST(TuneTest, EveryPointOfTheFrontierHasTheSameWindows) {
  Laboratory laboratory;
  laboratory.world.kl_effects = {{{0, 2}, -1.0}};
  laboratory.run_s = 1;
  TuningProblem problem = AgreementProblem(0.97);
  for (const double limit_s : {20.0, 60.0, 100.0, 1000.0}) {
    problem.limit_s = limit_s;
    const auto result = laboratory.Tune(problem);
    laboratory.now_s = 0;
    ASSERT_TRUE(result.ok());
    ASSERT_GE(result->frontier.size(), 3u);
    for (size_t place : result->frontier) {
      for (uint32_t window : result->windows) {
        EXPECT_TRUE(result->trials[place].figures[window].has_value());
      }
    }
  }
}

TEST(TuneTest, ASettingThatHoldsLessIsComparedAtEqualMemory) {
  // Half the memory and the KL that the default would have with it: no gain.
  Laboratory laboratory;
  laboratory.world.memory_factors = {{{0, 1}, 0.5}};
  laboratory.world.kl_effects = {{{0, 2}, 3.0},
                                 {{1, 1}, 3.0},
                                 {{2, 1}, 3.0},
                                 {{2, 2}, 3.0},
                                 {{2, 3}, 3.0}};
  TuningProblem problem = MemoryProblem();
  problem.goal.value = 0.5;
  auto result = laboratory.Tune(problem);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(BestOf(*result).candidate.choices[0], 0u);
  // Less than that, though more than the default has within the budget.
  laboratory.world.kl_effects[{0, 1}] = -1.0;
  result = laboratory.Tune(problem);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(BestOf(*result).candidate.choices[0], 1u);
  EXPECT_NEAR(result->duel->kl_ratio, std::exp(-1.0), 0.02);
}

TEST(TuneTest, LessMemoryThanTheDefaultWasMeasuredWithExcusesNothing) {
  Laboratory laboratory;
  laboratory.world.memory_factors = {{{0, 1}, 0.5}};
  laboratory.world.kl_effects = {{{0, 1}, -0.5}};
  const auto result = laboratory.Tune(MemoryProblem());  // the least share
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(BestOf(*result).candidate.choices[0], 0u);
}

TEST(TuneTest, AnAgreementGetsTheLeastMemoryThatReachesIt) {
  Laboratory laboratory;
  const auto result = laboratory.Tune(AgreementProblem(0.96));
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->is_reached);
  const TuningCandidate& best = BestOf(*result).candidate;
  EXPECT_GE(MeansOf(BestOf(*result), result->windows).agreement, 0.96);
  // Found between the shares asked for, to within the finest step.
  EXPECT_GT(best.share, 0.25);
  EXPECT_LT(best.share, 0.5);
  double just_below = 0;
  for (size_t place : result->frontier) {
    const TuningTrial& trial = result->trials[place];
    if (trial.candidate.share < best.share) {
      just_below = std::max(just_below, trial.candidate.share);
      EXPECT_LT(MeansOf(trial, result->windows).agreement, 0.96);
    }
  }
  EXPECT_LE(best.share - just_below, 0.25 / 8 + 1e-9);
}

TEST(TuneTest, ABetterSettingReachesAnAgreementWithLess) {
  Laboratory laboratory;
  const auto plain = laboratory.Tune(AgreementProblem(0.96));
  laboratory.world.kl_effects = {{{2, 2}, -1.5}};
  const auto tuned = laboratory.Tune(AgreementProblem(0.96));
  ASSERT_TRUE(plain.ok() && tuned.ok());
  EXPECT_EQ(BestOf(*tuned).candidate.choices[2], 2u);
  EXPECT_LT(BestOf(*tuned).candidate.share, BestOf(*plain).candidate.share);
}

TEST(TuneTest, BetterPredictionsThatNeedMoreMemoryForTheGoalAreNoGain) {
  Laboratory laboratory;
  laboratory.world.kl_effects = {{{0, 1}, -1.0}};
  laboratory.world.agreement_effects = {{{0, 1}, -0.5}};
  const auto result = laboratory.Tune(AgreementProblem(0.96));
  ASSERT_TRUE(result.ok());
  EXPECT_LT(result->duel->kl_ratio_ci95->high, 1);
  EXPECT_FALSE(result->duel->is_won);
  EXPECT_EQ(BestOf(*result).candidate.choices[0], 0u);
  EXPECT_TRUE(result->is_reached);
}

TEST(TuneTest, AGoalOutOfReachGivesTheNearest) {
  Laboratory laboratory;
  const auto result = laboratory.Tune(AgreementProblem(0.9999));
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->is_reached);
  EXPECT_EQ(BestOf(*result).candidate.share, 0.75);
}

TEST(TuneTest, AMemoryThatTheSmallestBudgetPassesIsNotReached) {
  Laboratory laboratory;
  laboratory.world.memory_factors = {
      {{0, 0}, 1.5}, {{0, 1}, 1.5}, {{0, 2}, 1.5}};
  const auto result = laboratory.Tune(MemoryProblem());
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->is_reached);
}

TEST(TuneTest, NothingIsMeasuredTwice) {
  Laboratory laboratory;
  laboratory.world.kl_effects = {{{0, 2}, -1.0}, {{1, 1}, -0.3}};
  const auto result = laboratory.Tune(AgreementProblem(0.96));
  ASSERT_TRUE(result.ok());
  for (size_t i = 0; i < laboratory.measured.size(); ++i) {
    EXPECT_EQ(std::count(laboratory.measured.begin(), laboratory.measured.end(),
                         laboratory.measured[i]),
              1);
  }
  EXPECT_EQ(result->n_runs, laboratory.measured.size());
  EXPECT_EQ(result->n_tried, result->trials.size());
}

TEST(TuneTest, NothingIsBegunThatWouldEndAfterTheLimit) {
  for (const double limit_s : {10.0, 30.0, 47.0, 60.0}) {
    Laboratory laboratory;
    laboratory.world.kl_effects = {{{0, 2}, -1.0}};
    laboratory.run_s = 1;
    TuningProblem problem = AgreementProblem(0.96);
    problem.limit_s = limit_s;
    const auto result = laboratory.Tune(problem);
    ASSERT_TRUE(result.ok());
    EXPECT_LE(laboratory.now_s, limit_s);
    EXPECT_EQ(result->end, TuningResult::End::kTimeLimit) << limit_s;
    // Nor is most of the time left unused.
    EXPECT_GE(laboratory.now_s, 0.4 * limit_s);
  }
}

TEST(TuneTest, AStoppedSearchGivesWhatItFound) {
  for (const uint32_t last_call : {2u, 4u, 7u, 12u}) {
    Laboratory laboratory;
    laboratory.world.kl_effects = {{{0, 2}, -1.0}};
    laboratory.fail = [&](uint32_t n_calls) {
      return n_calls < last_call ? Status() : Cancelled("stopped");
    };
    const auto result = laboratory.Tune(AgreementProblem(0.96));
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->end, TuningResult::End::kInterrupted);
    EXPECT_EQ(laboratory.n_calls, last_call);
    EXPECT_FALSE(result->windows.empty());
    EXPECT_GE(result->frontier.size(), 3u);
  }
}

TEST(TuneTest, WhatIsStoppedBeforeAnythingWasMeasuredSaysWhy) {
  Laboratory laboratory;
  laboratory.fail = [](uint32_t) { return Cancelled("stopped"); };
  TuningProblem problem = MemoryProblem();
  EXPECT_EQ(laboratory.Tune(problem).status().code(), StatusCode::kCancelled);
  laboratory.run_s = 100;
  problem.limit_s = 60;
  const Status late = laboratory.Tune(problem).status();
  EXPECT_EQ(late.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(late.message().find("60 s are not enough"), std::string::npos);
}

TEST(TuneTest, AFailureOfTheMeasurementIsPassedOn) {
  for (const uint32_t call : {1u, 2u, 5u}) {
    Laboratory laboratory;
    laboratory.fail = [&](uint32_t n_calls) {
      return n_calls < call ? Status() : OutOfMemory("no room");
    };
    EXPECT_EQ(laboratory.Tune(MemoryProblem()).status().code(),
              StatusCode::kOutOfMemory);
  }
}

}  // namespace
}  // namespace lkv
