// The measurements on the real model, on short texts.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "eval/demo.h"
#include "eval/forced_run.h"
#include "eval/hit_rate.h"
#include "eval/speed.h"
#include "testing/test_engine.h"

namespace lkv {
namespace {

Engine& PreciseEngine() { return SharedEngine<ActivationPrecision::kHigh>(); }

std::vector<int32_t> DemoTokens() {
  return PreciseEngine().tokenizer().Tokenize(
      DemoText(), Tokenizer::Start::kAsTrained, Tokenizer::Special::kAsText);
}

CacheOptions ShareOf(PolicyName policy, double share) {
  CacheOptions cache;
  cache.policy = policy;
  cache.budget = {Budget::Kind::kShare, share, 0};
  return cache;
}

TEST(DemoTest, TextIsLongEnoughForItsOwnDemonstration) {
  const DemoOptions options;
  EXPECT_GE(DemoTokens().size(),
            options.context_tokens + options.forced_tokens);
}

TEST(DemoTest, RowsCompareThePoliciesWithTheFullCache) {
  DemoOptions options;
  options.context_tokens = 640;
  options.forced_tokens = 32;
  options.answer_tokens = 4;
  options.text.resize(3600);
  options.cache = ShareOf(PolicyName::kLookahead, 0.4);
  std::vector<std::string> stages;
  uint64_t done_tokens = 0, total_tokens = 0;
  Result<DemoReport> report =
      RunDemo(PreciseEngine(), options,
              [&](const DemoProgress& now) {
                EXPECT_GE(now.done_tokens, done_tokens);
                EXPECT_LE(now.done_tokens, now.total_tokens);
                done_tokens = now.done_tokens;
                total_tokens = now.total_tokens;
                const std::string what(now.what);
                if (stages.empty() || stages.back() != what) {
                  stages.push_back(what);
                }
              },
              {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->context_tokens, 640u);
  EXPECT_EQ(report->forced_tokens, 32u);
  EXPECT_EQ(stages,
            (std::vector<std::string>{
                "full cache", "policy lru", "policy lookahead", "noise floor",
                "hit rates and fidelity", "a question about the text"}));
  EXPECT_EQ(done_tokens, total_tokens);
  EXPECT_EQ(report->no_question, "");
  ASSERT_EQ(report->rows.size(), 4u);
  EXPECT_FALSE(report->rows[2].reads_whole);
  EXPECT_TRUE(report->rows[3].reads_whole);

  // The full cache agrees with itself exactly: the runs repeat bit for bit.
  const DemoRow& full = report->rows[0];
  EXPECT_EQ(full.policy, PolicyName::kFull);
  EXPECT_EQ(full.fidelity.kl_mean, 0);
  EXPECT_EQ(full.fidelity.top1_agreement, 1);
  EXPECT_EQ(full.fidelity.n_tokens, 32u);
  EXPECT_EQ(full.kv.evicted_tokens, 0u);

  for (size_t i = 1; i < 3; ++i) {
    const DemoRow& row = report->rows[i];
    EXPECT_GT(row.kv.evicted_tokens, 0u);
    EXPECT_LE(row.kv.resident_bytes_max, row.kv.budget_bytes);
    EXPECT_LT(row.kv.resident_bytes_max, full.kv.resident_bytes_max);
    EXPECT_GT(row.fidelity.kl_mean, 0);
    EXPECT_GT(row.hit.mass, 0);
    EXPECT_LT(row.hit.mass, 1);
    EXPECT_GE(row.hit.raw, row.hit.mass);
    EXPECT_EQ(row.hit.sampled_steps, 4u);
    EXPECT_GT(row.decode_tokens_per_second, 0);
    EXPECT_FALSE(row.answer.empty());
  }
  // Another rounding changes something, but far less than eviction.
  EXPECT_GT(report->noise_floor.kl_mean, 0);
  EXPECT_LT(report->noise_floor.kl_mean, report->rows[1].fidelity.kl_mean);
}

TEST(DemoTest, ShorterTextIsSplitInTheSameProportion) {
  DemoOptions options;
  options.text.resize(1500);
  options.context_tokens = 4096;
  options.forced_tokens = 256;
  options.question.clear();
  Result<DemoReport> report = RunDemo(PreciseEngine(), options, {}, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_NEAR(report->context_tokens / report->forced_tokens, 16, 1);
  EXPECT_TRUE(report->rows[0].answer.empty());
}

TEST(DemoTest, TextTooShortToCompareIsRefused) {
  DemoOptions options;
  options.text = "Too short.";
  Result<DemoReport> report = RunDemo(PreciseEngine(), options, {}, {});
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
}

TEST(DemoTest, APolicyNamedTwiceGetsOneRow) {
  DemoOptions options;
  options.text.resize(1500);
  options.question.clear();
  options.policies = {PolicyName::kLru, PolicyName::kFull, PolicyName::kLru};
  Result<DemoReport> report = RunDemo(PreciseEngine(), options, {}, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->rows.size(), 2u);
  EXPECT_EQ(report->rows[0].policy, PolicyName::kFull);
  EXPECT_EQ(report->rows[1].policy, PolicyName::kLru);
}

TEST(DemoTest, ABudgetBelowTheFloorIsRefusedBeforeAnyWork) {
  DemoOptions options;
  // In 285 tokens the text alone fits, but not beside the template's marks.
  for (const uint64_t budget_tokens : {1, 285}) {
    options.cache.budget = {Budget::Kind::kTokens, 1.0, budget_tokens};
    uint32_t n_stages = 0;
    Result<DemoReport> report = RunDemo(
        PreciseEngine(), options, [&](const DemoProgress&) { ++n_stages; }, {});
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(report.status().message().find("budget"), std::string::npos);
    EXPECT_EQ(n_stages, 0u);
  }
}

TEST(DemoTest, ATextThatNoChatTakesIsRefusedWithItsReason) {
  DemoOptions options;
  options.text += '\0';
  Result<DemoReport> report = RunDemo(PreciseEngine(), options, {}, {});
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(report.status().message().find("NUL byte; remove it"),
            std::string::npos);
}

TEST(DemoTest, ReadingTheQuestionCanBeCancelled) {
  uint32_t n_stages = 0;
  Result<DemoReport> report = RunDemo(
      PreciseEngine(), DemoOptions(), [&](const DemoProgress&) { ++n_stages; },
      [] { return true; });
  EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(n_stages, 0u);
}

TEST(DemoTest, CancelledDemoSaysSo) {
  DemoOptions options;
  Result<DemoReport> report =
      RunDemo(PreciseEngine(), options, {}, [] { return true; });
  EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
}

TEST(MeasureHitRatesTest, RoomForEverythingHitsEverything) {
  const std::vector<int32_t> tokens = DemoTokens();
  const ForcedPart part{std::span(tokens).first(400),
                        std::span(tokens).subspan(400, 12)};
  const SequenceOptions roomy = OptionsFor({&part, 1}, [] {
    CacheOptions cache;
    cache.budget = {Budget::Kind::kTokens, 1.0, 1000};
    return cache;
  }());
  Result<std::vector<HitRates>> rates =
      MeasureHitRates(PreciseEngine(), {&part, 1}, {&roomy, 1}, {});
  ASSERT_TRUE(rates.ok()) << rates.status().message();
  EXPECT_DOUBLE_EQ((*rates)[0].mass, 1);
  EXPECT_DOUBLE_EQ((*rates)[0].topk, 1);
  EXPECT_DOUBLE_EQ((*rates)[0].raw, 1);
  EXPECT_EQ((*rates)[0].sampled_steps, 2u);
}

TEST(MeasureHitRatesTest, EvictionLosesContestableMassFirst) {
  const std::vector<int32_t> tokens = DemoTokens();
  const ForcedPart part{std::span(tokens).first(600),
                        std::span(tokens).subspan(600, 8)};
  const SequenceOptions small =
      OptionsFor({&part, 1}, ShareOf(PolicyName::kStreaming, 0.4));
  Result<std::vector<HitRates>> rates =
      MeasureHitRates(PreciseEngine(), {&part, 1}, {&small, 1}, {});
  ASSERT_TRUE(rates.ok()) << rates.status().message();
  EXPECT_GT((*rates)[0].raw, 0.3);
  EXPECT_LT((*rates)[0].raw, 1);
  EXPECT_LT((*rates)[0].mass, (*rates)[0].raw);
}

TEST(SpeedTest, EveryCombinationGivesARow) {
  SpeedOptions options;
  options.depths = {0, 64};
  options.batches = {1, 2};
  options.gen_tokens = 4;
  options.prefill_tokens = {48};
  options.kv_types = {KvTypeName::kF16, KvTypeName::kBF16};
  uint32_t n_seen = 0;
  Result<std::vector<SpeedRow>> rows = MeasureSpeed(
      PreciseEngine(), options, [&](const SpeedRow&) { ++n_seen; }, {});
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  ASSERT_EQ(rows->size(), 10u);
  EXPECT_EQ(n_seen, 10u);
  EXPECT_EQ((*rows)[0].kind, SpeedRow::Kind::kPrefill);
  EXPECT_EQ((*rows)[4].batch, 2u);
  EXPECT_EQ((*rows)[4].depth_tokens, 64u);
  EXPECT_EQ((*rows)[5].kv_type, KvTypeName::kBF16);
  for (const SpeedRow& row : *rows) {
    EXPECT_GT(row.tokens_per_second, 0);
    EXPECT_GT(row.stream_gb_s, 0);
    if (row.kind == SpeedRow::Kind::kDecode) {
      EXPECT_GT(row.step.p50_us, 0);
      EXPECT_GE(row.step.max_us, row.step.p99_us);
      EXPECT_GT(row.step_cpu.p50_us, 0);
      EXPECT_GE(row.step_cpu.max_us, row.step_cpu.p99_us);
      EXPECT_LT(row.policy_share, 1);
    }
  }
}

TEST(SpeedTest, ABatchOfForksReadsItsPromptOnce) {
  SpeedOptions options;
  options.depths = {640};
  options.batches = {1, 4};
  options.gen_tokens = 4;
  options.prefill_tokens = {};
  options.shared_prompt = true;
  // The first layer's first head sees each query token once.
  class Counter final : public AttentionObserver {
   public:
    void OnAttention(const AttentionSample& sample) override {
      if (sample.layer != 0 || sample.kv_head != 0) return;
      if (sample.query_pos == 639) ++n_prompts;
    }
    uint32_t n_prompts = 0;
  } counter;
  PreciseEngine().SetObserver(&counter);
  Result<std::vector<SpeedRow>> rows =
      MeasureSpeed(PreciseEngine(), options, {}, {});
  PreciseEngine().SetObserver(nullptr);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_FALSE((*rows)[0].shared_prompt);
  EXPECT_TRUE((*rows)[1].shared_prompt);
  EXPECT_EQ(counter.n_prompts, 2u);  // one in each row
}

TEST(SpeedTest, ARowThatCannotBeIsRefusedBeforeTheOthersAreMeasured) {
  SpeedOptions options;
  options.depths = {0, 64};
  options.gen_tokens = 4;
  options.prefill_tokens = {48};
  options.budgets = {Budget{}, {Budget::Kind::kTokens, 1.0, 1}};
  uint32_t n_seen = 0;
  Result<std::vector<SpeedRow>> rows = MeasureSpeed(
      PreciseEngine(), options, [&](const SpeedRow&) { ++n_seen; }, {});
  EXPECT_EQ(rows.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(n_seen, 0u);
}

TEST(SpeedTest, ABatchThatDoesNotFitIsRefusedBeforeItsPromptsAreRead) {
  SpeedOptions options;
  options.depths = {8000};
  options.batches = {1, 4096};  // 700 GiB of keys and values
  options.gen_tokens = 4;
  options.prefill_tokens = {48};
  uint32_t n_seen = 0;
  Result<std::vector<SpeedRow>> rows = MeasureSpeed(
      PreciseEngine(), options, [&](const SpeedRow&) { ++n_seen; }, {});
  EXPECT_EQ(rows.status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(n_seen, 0u);
}

TEST(SpeedTest, GivenTextIsRepeatedAsNeeded) {
  SpeedOptions options;
  options.depths = {32};
  options.gen_tokens = 4;
  options.prefill_tokens = {};
  options.text = {100, 200, 300};
  Result<std::vector<SpeedRow>> rows =
      MeasureSpeed(PreciseEngine(), options, {}, {});
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_EQ(rows->size(), 1u);
}

}  // namespace
}  // namespace lkv
