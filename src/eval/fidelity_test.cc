#include "eval/fidelity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lkv {
namespace {

// Logits of given probabilities.
std::vector<float> Logits(const std::vector<double>& p) {
  std::vector<float> logits;
  for (double x : p) logits.push_back(static_cast<float>(std::log(x)));
  return logits;
}

TEST(FidelityTest, EqualLogitsLoseNothing) {
  const auto p = Logits({.1, .2, .3, .2, .1, .1});
  FidelityMeter meter;
  meter.Add(p, p, 2);
  const Fidelity f = meter.Result();
  EXPECT_NEAR(f.kl_mean, 0, 1e-12);
  EXPECT_EQ(f.top1_agreement, 1);
  EXPECT_EQ(f.top5_overlap, 1);
  EXPECT_NEAR(f.perplexity_ratio, 1, 1e-12);
  EXPECT_EQ(f.n_tokens, 1u);
}

TEST(FidelityTest, MatchesNumbersWorkedOutByHand) {
  // KL = .5 ln(.5/.25) + .25 ln(.25/.5) = .25 ln 2; the other four are equal.
  const auto full = Logits({.5, .25, .0625, .0625, .0625, .0625});
  const auto policy = Logits({.25, .5, .0625, .0625, .0625, .0625});
  FidelityMeter meter;
  meter.Add(full, policy, 0);
  const Fidelity f = meter.Result();
  EXPECT_NEAR(f.kl_mean, .25 * std::log(2), 1e-7);
  EXPECT_EQ(f.top1_agreement, 0);
  EXPECT_EQ(f.top5_overlap, 1);
  // The text goes on with a token half as likely: perplexity doubles.
  EXPECT_NEAR(f.perplexity_ratio, 2, 1e-6);
  EXPECT_NEAR(f.full_nll, std::log(2), 1e-7);
}

TEST(FidelityTest, DirectionIsFromFullToPolicy) {
  const auto full = Logits({.9, .02, .02, .02, .02, .02});
  const auto policy = Logits({.5, .1, .1, .1, .1, .1});
  FidelityMeter meter;
  meter.Add(full, policy, 0);
  EXPECT_NEAR(meter.Result().kl_mean,
              .9 * std::log(.9 / .5) + .1 * std::log(.02 / .1), 1e-7);
}

TEST(FidelityTest, ShiftedLogitsAreTheSameDistribution) {
  const auto full = Logits({.5, .25, .0625, .0625, .0625, .0625});
  auto shifted = full;
  for (float& x : shifted) x += 30;
  FidelityMeter meter;
  meter.Add(full, shifted, 1);
  EXPECT_NEAR(meter.Result().kl_mean, 0, 1e-5);
  EXPECT_NEAR(meter.Result().perplexity_ratio, 1, 1e-5);
}

TEST(FidelityTest, Top5CountsCommonTokens) {
  // Two of the five best differ: {0..4} against {2..6}.
  const std::vector<float> full = {9, 8, 7, 6, 5, 1, 0};
  const std::vector<float> policy = {0, 1, 7, 6, 5, 9, 8};
  FidelityMeter meter;
  meter.Add(full, policy, 0);
  EXPECT_NEAR(meter.Result().top5_overlap, 0.6, 1e-12);
}

TEST(FidelityTest, TailsAndSureTokensAreSeparated) {
  const auto sure = Logits({.95, .01, .01, .01, .01, .01});
  const auto sure_wrong = Logits({.01, .95, .01, .01, .01, .01});
  const auto open = Logits({.2, .16, .16, .16, .16, .16});
  FidelityMeter meter;
  for (int i = 0; i < 98; ++i) meter.Add(open, open, 0);
  meter.Add(sure, sure_wrong, 0);
  meter.Add(sure, sure_wrong, 0);
  const double kl = .95 * std::log(95.0) + .01 * std::log(1 / 95.0);
  const Fidelity f = meter.Result();
  EXPECT_NEAR(f.kl_mean, 2 * kl / 100, 1e-6);
  EXPECT_NEAR(f.kl_p95, 0, 1e-9);
  EXPECT_NEAR(f.kl_p99, kl, 1e-5);
  EXPECT_EQ(f.top1_agreement, .98);
}

TEST(FidelityTest, FirstDivergenceCountsTheTokensBeforeIt) {
  const auto a = Logits({.5, .1, .1, .1, .1, .1});
  const auto b = Logits({.1, .5, .1, .1, .1, .1});
  FidelityMeter meter;
  for (int i = 0; i < 3; ++i) meter.Add(a, a, 0);
  EXPECT_EQ(meter.Result().first_divergence, 3u);  // none yet
  meter.Add(a, b, 0);
  meter.Add(a, a, 0);
  meter.Add(a, b, 0);
  EXPECT_EQ(meter.Result().first_divergence, 3u);
  EXPECT_EQ(meter.Result().n_tokens, 6u);
}

TEST(FidelityTest, MeanOfSureTokensLeavesUnsureOnesOut) {
  const auto sure = Logits({.95, .01, .01, .01, .01, .01});
  const auto open = Logits({.2, .16, .16, .16, .16, .16});
  const auto open_wrong = Logits({.16, .2, .16, .16, .16, .16});
  FidelityMeter meter;
  for (int i = 0; i < 2; ++i) meter.Add(sure, sure, 0);
  for (int i = 0; i < 2; ++i) meter.Add(open, open_wrong, 0);
  EXPECT_NEAR(meter.Result().kl_mean_sure, 0, 1e-12);
  EXPECT_GT(meter.Result().kl_mean, 1e-3);
}

}  // namespace
}  // namespace lkv
