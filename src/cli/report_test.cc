// What people and programs read of a run and of the demonstration.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "cli/demo_report.h"
#include "cli/generation_report.h"
#include "cli/source_table_report.h"

namespace lkv::cli {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

void ExpectNoLineBeyond80(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

Generation SomeGeneration() {
  Generation generation;
  generation.tokens = {1, 2, 3};
  generation.text = "abc";
  generation.stop_reason = StopReason::kEndOfText;
  generation.times.step_us = {1000, 3000};
  generation.times.prefill_tokens = 6000;
  generation.times.prefill_s = 2;
  generation.times.decode_us = 4000;
  generation.times.policy_us = 100;
  generation.kv.n_tokens = 6002;
  generation.kv.budget_bytes = 33 * kMiB;
  generation.kv.resident_bytes = 32 * kMiB;
  generation.kv.resident_bytes_max = 33 * kMiB;
  generation.kv.full_bytes = 132 * kMiB;
  generation.kv.evicted_tokens = 4500;
  return generation;
}

TEST(GenerationReportTest, RatesAndSharesAreThoseOfTheTimes) {
  const Generation generation = SomeGeneration();
  const auto document = ReportAsJson({generation, 6000, {}, {}});
  EXPECT_EQ(document["prefill"]["tokens_per_second"], 3000);
  EXPECT_EQ(document["decode"]["tokens_per_second"], 500);
  EXPECT_EQ(document["decode"]["policy_share"], 0.025);
  EXPECT_EQ(document["decode"]["step_us"]["max"], 3000);
  EXPECT_EQ(document["generated_tokens"], 3);
  EXPECT_EQ(document["stop_reason"], "end_of_text");
  EXPECT_EQ(document["kv"]["tiers"]["L1"], 32 * kMiB);
  EXPECT_TRUE(document["hit"].is_null());
}

TEST(GenerationReportTest, HitRatesAppearOnceMeasured) {
  const Generation generation = SomeGeneration();
  HitRates hit;
  hit.mass = 0.75;
  hit.sampled_steps = 9;
  const GenerationReport report{generation, 6000, {}, hit};
  EXPECT_EQ(ReportAsJson(report)["hit"]["mass"], 0.75);
  EXPECT_EQ(ReportAsJson(report)["hit"]["sampled_steps"], 9);
  EXPECT_NE(ReportAsText(report).find("hit rate   75.0 % of the attention"),
            std::string::npos);
}

TEST(GenerationReportTest, TextFitsATerminalAndSaysHowFarPrefillCame) {
  const Generation generation = SomeGeneration();
  const std::string whole = ReportAsText({generation, 6000, {}, {}});
  ExpectNoLineBeyond80(whole);
  EXPECT_NE(whole.find("prompt     6,000 tokens in 2.00 s, 3,000 tokens/s\n"),
            std::string::npos)
      << whole;
  EXPECT_NE(
      ReportAsText({generation, 9000, {}, {}}).find("6,000 of 9,000 tokens"),
      std::string::npos);
}

TEST(GenerationReportTest, SaysWhichPredictorServesAndWhy) {
  Generation generation = SomeGeneration();
  CacheOptions cache;
  const auto predictor_of = [&] {
    const std::string text = ReportAsText({generation, 6000, cache, {}});
    ExpectNoLineBeyond80(text);
    const auto kv = ReportAsJson({generation, 6000, cache, {}})["kv"];
    const std::string reason = kv["forecast"]["reason"];
    EXPECT_NE(text.find(reason), std::string::npos) << text;
    return kv["predictor"].get<std::string>() + ": " + reason;
  };
  EXPECT_EQ(predictor_of(), "ema: no network was trained for this model");
  cache.predictor = "ema";
  EXPECT_EQ(predictor_of(), "ema: as asked");
  cache.predictor = "auto";
  generation.kv.forecast = ForecastCheck::Verdict{};
  EXPECT_EQ(predictor_of(), "mlp: nothing given up has returned yet");
  generation.kv.forecast = ForecastCheck::Verdict{.uses_network = false,
                                                  .n_returns = 1200,
                                                  .network_rank = 0.25f,
                                                  .average_rank = 0.5f};
  EXPECT_EQ(predictor_of(),
            "ema: network left out: it ranks 1,200 returns 0.25, the average "
            "0.50");
  generation.kv.forecast.reset();
  cache.score = ScoreName::kValueNorm;
  EXPECT_EQ(predictor_of(), "ema: score value_norm asks no network");
  cache.policy = PolicyName::kLru;
  EXPECT_TRUE(
      ReportAsJson({generation, 6000, cache, {}})["kv"]["forecast"].is_null());
}

TEST(GenerationReportTest, OneTokenIsNoPlural) {
  Generation generation = SomeGeneration();
  generation.tokens = {1};
  generation.times.prefill_tokens = 1;
  HitRates hit;
  hit.sampled_steps = 1;
  const std::string text = ReportAsText({generation, 1, {}, hit});
  EXPECT_NE(text.find("prompt     1 token in"), std::string::npos) << text;
  EXPECT_NE(text.find("generated  1 token,"), std::string::npos) << text;
  EXPECT_NE(text.find("at 1 step)"), std::string::npos) << text;
  ExpectNoLineBeyond80(text);
}

TEST(GenerationReportTest, MoreMemoryThanEverythingTakesIsExplained) {
  Generation generation = SomeGeneration();
  EXPECT_EQ(ReportAsText({generation, 1, {}, {}}).find("part-filled"),
            std::string::npos);
  generation.kv.full_bytes = kMiB;
  const std::string text = ReportAsText({generation, 1, {}, {}});
  EXPECT_NE(text.find("part-filled"), std::string::npos) << text;
  ExpectNoLineBeyond80(text);
}

TEST(GenerationReportTest, NothingDecodedIsNoDivisionByZero) {
  Generation generation;
  const auto document = ReportAsJson({generation, 5, {}, {}});
  EXPECT_EQ(document["decode"]["tokens_per_second"], 0);
  EXPECT_EQ(document["prefill"]["tokens_per_second"], 0);
  ExpectNoLineBeyond80(ReportAsText({generation, 5, {}, {}}));
}

TEST(DumpJsonTest, BytesThatAreNotUtf8StillGiveADocument) {
  const std::string text = DumpJson({{"answer", "caf\xe9"}});
  EXPECT_TRUE(nlohmann::json::accept(text)) << text;
}

DemoReport SomeReport() {
  DemoReport report;
  report.context_tokens = 4096;
  report.forced_tokens = 256;
  report.weight_bytes = 96 * kMiB;
  for (PolicyName policy :
       {PolicyName::kFull, PolicyName::kLru, PolicyName::kLookahead}) {
    DemoRow row;
    row.policy = policy;
    row.decode_tokens_per_second = policy == PolicyName::kFull ? 100 : 150;
    row.kv.read_bytes_last_step =
        (policy == PolicyName::kFull ? 96 : 24) * kMiB;
    row.kv.resident_bytes_max = row.kv.read_bytes_last_step;
    row.kv.evicted_tokens = policy == PolicyName::kFull ? 0 : 3000;
    row.hit.mass = policy == PolicyName::kLru ? 0.5 : 0.75;
    row.fidelity.kl_mean = policy == PolicyName::kLru ? 0.04 : 0.02;
    row.answer = "A lamp\nof brass.";
    report.rows.push_back(row);
  }
  DemoRow whole = report.rows.back();
  whole.reads_whole = true;
  whole.kv.resident_bytes_max = 95 * kMiB;
  whole.kv.budget_bytes = 25 * kMiB;
  whole.fidelity.kl_mean = 0.003;
  report.rows.push_back(whole);
  report.noise_floor.kl_mean = 0.0004;
  return report;
}

TEST(DemoReportTest, ATextThatFitsTheBudgetProvesNothing) {
  DemoReport report = SomeReport();
  for (DemoRow& row : report.rows) row.kv.evicted_tokens = 0;
  const std::string text = DemoAsText(report, DemoOptions());
  EXPECT_NE(text.find("Nothing had to leave"), std::string::npos) << text;
  EXPECT_EQ(text.find("times as fast"), std::string::npos) << text;
}

TEST(DemoReportTest, TheTableHasARowPerPolicyAndTheReadingItsFigures) {
  const std::string text = DemoAsText(SomeReport(), DemoOptions());
  ExpectNoLineBeyond80(text);
  EXPECT_NE(text.find("full                 100.0     10.00   96.0 MiB"),
            std::string::npos)
      << text;
  EXPECT_NE(
      text.find("lookahead            150.0      6.67   24.0 MiB    75.0 %"),
      std::string::npos)
      << text;
  EXPECT_NE(
      text.find("lookahead, whole     150.0      6.67   95.0 MiB    75.0 %"),
      std::string::npos)
      << text;
  std::string flat = text;
  std::replace(flat.begin(), flat.end(), '\n', ' ');
  EXPECT_NE(flat.find("lookahead decoded 1.50 times as fast as full."),
            std::string::npos);
  EXPECT_NE(flat.find("with the weights 1.60 times fewer bytes"),
            std::string::npos)
      << flat;
  EXPECT_NE(flat.find("0.02 nats from those of full, lru's 0.04"),
            std::string::npos);
  EXPECT_NE(flat.find("rounding alone: 0.0004"), std::string::npos);
  EXPECT_NE(flat.find("It takes 95.0 MiB until then and 25.0 MiB from then on; "
                      "its predictions lie 0.003 nats"),
            std::string::npos)
      << flat;
}

TEST(DemoReportTest, EveryPolicysAnswerFollowsTheQuestion) {
  DemoOptions options;
  options.question = "What lamp?";
  const std::string text = DemoAsText(SomeReport(), options);
  const size_t question = text.find("What lamp?");
  ASSERT_NE(question, std::string::npos);
  for (const char* line : {"  full              A lamp of brass.\n",
                           "  lru               A lamp of brass.\n",
                           "  lookahead         A lamp of brass.\n",
                           "  lookahead, whole  A lamp of brass.\n"}) {
    EXPECT_NE(text.find(line, question), std::string::npos) << text;
  }
  DemoReport unasked = SomeReport();
  unasked.no_question = "no template";
  const std::string why = DemoAsText(unasked, options);
  EXPECT_NE(why.find("No question was asked: no template.\n"),
            std::string::npos);
  EXPECT_EQ(why.find("A lamp"), std::string::npos);
  options.question.clear();
  EXPECT_EQ(DemoAsText(SomeReport(), options).find("A lamp"),
            std::string::npos);
}

TEST(DemoReportTest, JsonHoldsRowsNoiseFloorAndReading) {
  const auto document = DemoAsJson(SomeReport(), DemoOptions());
  ASSERT_EQ(document["rows"].size(), 4u);
  EXPECT_EQ(document["rows"][2]["policy"], "lookahead");
  EXPECT_EQ(document["rows"][2]["hit"]["mass"], 0.75);
  EXPECT_EQ(document["noise_floor"]["kl_mean"], 0.0004);
  EXPECT_EQ(document["reading"].size(), 3u);
}

TEST(SourceTableReportTest, ShowsCostQualityAndWhatTheSketchSays) {
  DemoReport report = SomeReport();
  report.context_tokens = 1024;
  report.forced_tokens = 2048;
  for (DemoRow& row : report.rows) {
    row.step.p50_us = 5000;
    row.step.p99_us = 9250;
    row.hit.topk = 0.625;
    row.hit.raw = 0.97;
  }
  DemoOptions options;
  options.cache.budget = {.kind = Budget::Kind::kBytes, .amount = 24 * kMiB};
  const std::string text = SourceTableAsText(report, options);
  ExpectNoLineBeyond80(text);
  for (const char* line :
       {"1,024 tokens in, 2,048 given tokens out; budget 24.0 MiB\n",
        "full          100.0    5.00    9.25  96.0 MiB     192.0 MiB   0.0 %\n",
        "lookahead     150.0    5.00    9.25  24.0 MiB     120.0 MiB  37.5 %\n",
        "lru          50.0 %     62.5 %   97.0 %"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
  std::string flat = text;
  std::replace(flat.begin(), flat.end(), '\n', ' ');
  for (const char* part :
       {"mass hit: share of attention", "top-k hit: of the tokens",
        "raw hit: of all", "42.7 to 89.3 tokens/s (2.1 times)",
        "hit rate 61.0 % to 86.0 %", "not reproduced here and not claimed"}) {
    EXPECT_NE(flat.find(part), std::string::npos) << part << "\n" << flat;
  }
}

TEST(SourceTableReportTest, JsonAddsMemoryAndTheSketchToTheDocument) {
  const auto document = SourceTableAsJson(SomeReport(), DemoOptions());
  EXPECT_EQ(document["rows"][2]["policy"], "lookahead");
  EXPECT_EQ(document["rows"][2]["memory"]["total_bytes_max"], 120 * kMiB);
  EXPECT_EQ(document["rows"][2]["memory"]["saved_share"], 0.375);
  EXPECT_EQ(document["rows"][0]["memory"]["saved_share"], 0);
  EXPECT_EQ(document["sketch"]["tokens_per_second"][1], 89.3);
  EXPECT_EQ(document["sketch"]["reproduced"], false);
}

}  // namespace
}  // namespace lkv::cli
