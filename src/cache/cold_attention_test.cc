// The paged cache with coarse copies of what leaves, against a cache that keeps
// everything.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "cache/dense_kv_cache.h"
#include "cache/paged_kv_cache.h"
#include "cache/testing_options.h"
#include "store/cold_pages.h"
#include "testing/cache_driver.h"

namespace lkv {
namespace {

constexpr KvShape kShape{
    .n_layers = 2, .n_kv_heads = 3, .group = 2, .head_dim = 64};
constexpr uint32_t kPromptTokens = 700;
constexpr uint32_t kNewTokens = 100;

SequenceOptions Tiered(double budget_share, double attend_share) {
  SequenceOptions options =
      Small(PolicyName::kLookahead,
            {.kind = Budget::Kind::kShare, .share = budget_share});
  options.cache.recent_tokens = 128;
  options.cache.tiers = true;
  options.cache.attend_share = attend_share;
  return options;
}

// The outputs of the last layer behind every decoded token.
using Outputs = std::vector<std::vector<float>>;

Outputs Decode(CacheDriver& drive, DrivenSequence& sequence, uint32_t n) {
  Outputs outputs;
  for (uint32_t i = 0; i < n; ++i) {
    std::vector<std::vector<float>> out = drive.Step(sequence, 1);
    EXPECT_FALSE(out.empty()) << drive.status.message();
    if (out.empty()) return outputs;
    outputs.push_back(std::move(out.back()));
  }
  return outputs;
}

// Reads a prompt and decodes. query_scale: larger is more peaked.
Outputs Live(KvCache& cache, const SequenceOptions& options, float query_scale,
             uint32_t n_threads = 1) {
  CacheDriver drive(cache, n_threads);
  drive.query_scale = query_scale;
  DrivenSequence sequence = drive.Add(options, 1);
  drive.Prefill(sequence, kPromptTokens, 64);
  return Decode(drive, sequence, kNewTokens);
}

// Root mean square of the difference over that of b.
double Distance(const Outputs& a, const Outputs& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, whole = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      difference += std::pow(a[i][j] - b[i][j], 2);
      whole += std::pow(b[i][j], 2);
    }
  }
  return std::sqrt(difference / whole);
}

Outputs LiveDense(float query_scale) {
  DenseKvCache dense(kShape);
  return Live(dense, Small(PolicyName::kFull, {}), query_scale);
}

TEST(ColdAttentionTest, WithEverythingReadOnlyTheRoundingOfCopiesRemains) {
  PagedKvCache cache(kShape, Threads(1));
  const double distance =
      Distance(Live(cache, Tiered(0.5, 1), 1), LiveDense(1));
  // Four bits: half a step is 3 % of the range of a channel of 64 keys or of a
  // row of values.
  EXPECT_LT(distance, 0.12);
  EXPECT_GT(distance, 0.01) << "nothing was read from copies";
}

TEST(ColdAttentionTest, WhatAQueryAsksForIsReadThoughItHasLeft) {
  const Outputs dense = LiveDense(4);
  PagedKvCache cache(kShape, Threads(1));
  SequenceOptions options = Tiered(0.5, 0.4);
  const double with_copies = Distance(Live(cache, options, 4), dense);
  options.cache.tiers = false;
  const double without = Distance(Live(cache, options, 4), dense);
  EXPECT_LT(with_copies, 0.4 * without);
  EXPECT_GT(without, 0.3);
}

// Less than a page for each lane: exact pages alone give a lane its output.
TEST(ColdAttentionTest, ALaneThatReadsNothingHasItsOutput) {
  PagedKvCache cache(kShape, Threads(1));
  EXPECT_LT(Distance(Live(cache, Tiered(0.9, 0.01), 1), LiveDense(1)), 0.7);
}

TEST(ColdAttentionTest, ResultsDoNotDependOnTheNumberOfThreads) {
  PagedKvCache one(kShape, Threads(1)), three(kShape, Threads(3));
  EXPECT_EQ(Live(one, Tiered(0.5, 0.4), 2, 1),
            Live(three, Tiered(0.5, 0.4), 2, 3));
}

TEST(ColdAttentionTest, TheBudgetPaysForCopiesAndHoldsAtEveryStep) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence sequence = drive.Add(Tiered(0.5, 0.4), 1);
  const auto check = [&] {
    const SequenceStats stats = cache.Stats(sequence.id);
    EXPECT_LE(stats.resident_bytes_max, stats.budget_bytes);
    const uint64_t n_groups = sequence.n_tokens / kColdGroupSlots;
    const uint64_t bytes_of_all =
        n_groups * kShape.n_lanes() * ColdPages::GroupBytes(kShape.head_dim);
    EXPECT_LE(stats.cold_bytes, bytes_of_all);
    // Lanes take turns, so the newest group is still to come in some.
    EXPECT_GE(stats.cold_bytes +
                  kShape.n_lanes() * ColdPages::GroupBytes(kShape.head_dim),
              bytes_of_all);
  };
  while (sequence.n_tokens < kPromptTokens) {
    ASSERT_FALSE(
        drive.Step(sequence, cache.ChunkTokens(sequence.id, 64)).empty());
    check();
  }
  for (uint32_t i = 0; i < 200; ++i) {
    ASSERT_FALSE(drive.Step(sequence, 1).empty()) << drive.status.message();
    check();
  }
  EXPECT_GT(cache.Stats(sequence.id).evicted_tokens, 500u);
}

TEST(ColdAttentionTest, ASmallerShareReadsFewerBytes) {
  uint64_t read_bytes[2];
  double n_left = 0;
  for (const int narrow : {0, 1}) {
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    DrivenSequence sequence = drive.Add(Tiered(0.6, narrow ? 0.4 : 0.8), 1);
    drive.Prefill(sequence, kPromptTokens, 64);
    drive.Step(sequence, 1);
    read_bytes[narrow] = cache.Stats(sequence.id).read_bytes_last_step;
    n_left = static_cast<double>(cache.Stats(sequence.id).evicted_tokens);
  }
  // Of the tokens that have left; a body takes 52 bytes a token of a lane.
  const double saved = 0.4 * n_left * kShape.n_lanes() * 52;
  EXPECT_NEAR(static_cast<double>(read_bytes[0] - read_bytes[1]), saved,
              0.05 * saved);
}

TEST(ColdAttentionTest, ATextThatWasReadWholeIsCopiedWhenItIsCut) {
  const Outputs dense = LiveDense(2);
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  drive.query_scale = 2;
  SequenceOptions options = Tiered(1, 1);
  DrivenSequence sequence = drive.Add(options, 1);
  drive.Prefill(sequence, kPromptTokens, 64);
  EXPECT_EQ(cache.Stats(sequence.id).cold_bytes, 0u);
  const Status status = cache.ShrinkBudget(
      sequence.id, {.kind = Budget::Kind::kShare, .share = 0.5}, kNewTokens);
  ASSERT_TRUE(status.ok()) << status.message();
  const SequenceStats stats = cache.Stats(sequence.id);
  EXPECT_GT(stats.cold_bytes, 0u);
  EXPECT_LE(stats.resident_bytes, stats.budget_bytes);
  EXPECT_GT(stats.evicted_tokens, 300u);
  EXPECT_LT(Distance(Decode(drive, sequence, kNewTokens), dense), 0.12);
}

// Turn after turn, under a share and under budgets that hold the first turns
// whole and the last ones not.
TEST(ColdAttentionTest, AConversationGrowsIntoItsCopies) {
  const auto tokens = [](uint64_t n) {
    return Budget{.kind = Budget::Kind::kTokens, .amount = n};
  };
  for (const Budget& budget :
       {Budget{.kind = Budget::Kind::kShare, .share = 0.3},
        Budget{.kind = Budget::Kind::kShare, .share = 0.6}, tokens(800),
        tokens(1200), tokens(3000)}) {
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    SequenceOptions options = Tiered(0.5, 0.4);
    options.cache.budget = budget;
    options.prompt_tokens = options.max_new_tokens = 0;
    options.max_tokens = 2000;
    DrivenSequence sequence = drive.Add(options, 1);
    while (sequence.n_tokens + 150 <= options.max_tokens) {
      const Status status = cache.AnnounceTurn(sequence.id, 100, 50);
      ASSERT_TRUE(status.ok()) << status.message();
      drive.Prefill(sequence, 100, 64);
      ASSERT_EQ(Decode(drive, sequence, 50).size(), 50u);
      const SequenceStats stats = cache.Stats(sequence.id);
      EXPECT_LE(stats.resident_bytes_max, stats.budget_bytes);
      EXPECT_LE(stats.resident_bytes, stats.fill_bytes);
    }
    EXPECT_EQ(cache.Stats(sequence.id).cold_bytes > 0, budget != tokens(3000));
  }
}

// Masses of the last query, of one layer.
class LastMasses final : public AttentionObserver {
 public:
  explicit LastMasses(uint32_t layer) : layer_(layer) {}
  void OnAttention(const AttentionSample& sample) override {
    if (sample.layer != layer_) return;
    mass[sample.kv_head].assign(sample.mass_mean,
                                sample.mass_mean + sample.n_slots);
  }
  std::vector<float> mass[kShape.n_kv_heads];

 private:
  const uint32_t layer_;
};

TEST(RecallGuardOfCacheTest, TheGapIsTheAttentionThatWasLeftOut) {
  for (const uint32_t n_prompt : {700u, 701u}) {
    SequenceOptions options = Tiered(0.5, 0);  // nothing is read of copies
    options.cache.guard_sample_steps = 1;
    options.cache.max_recall_gap = 1;
    PagedKvCache tiered(kShape, Threads(2));
    DenseKvCache dense(kShape);
    CacheDriver drive(tiered, 2), drive_dense(dense, 1);
    drive.query_scale = drive_dense.query_scale = 2;
    DrivenSequence a = drive.Add(options, 1);
    DrivenSequence b = drive_dense.Add(Small(PolicyName::kFull, {}), 1);
    drive.Prefill(a, n_prompt, 64);
    drive_dense.Prefill(b, n_prompt, 64);
    const uint32_t layer = n_prompt % kShape.n_layers;
    LastMasses observer(layer);
    dense.SetObserver(&observer);
    drive_dense.Step(b, 1);
    drive.Step(a, 1);
    double left_out = 1;
    for (uint32_t h = 0; h < kShape.n_kv_heads; ++h) {
      for (const uint32_t pos : tiered.ResidentPositions(a.id, layer, h)) {
        left_out -= observer.mass[h][pos] / kShape.n_kv_heads;
      }
    }
    const std::optional<RecallGuard> guard = tiered.Stats(a.id).guard;
    ASSERT_TRUE(guard.has_value());
    EXPECT_EQ(guard->n_samples(), 1u);
    EXPECT_GT(left_out, 0.2);
    EXPECT_NEAR(guard->gap(), left_out, 0.02);
  }
}

TEST(RecallGuardOfCacheTest, LookingChangesNothing) {
  Outputs outputs[2];
  for (const bool guards : {false, true}) {
    SequenceOptions options = Tiered(0.5, 0.2);
    options.cache.guard = guards;
    options.cache.guard_sample_steps = 1;
    options.cache.max_recall_gap = 1;
    PagedKvCache cache(kShape, Threads(2));
    outputs[guards] = Live(cache, options, 2, 2);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

TEST(RecallGuardOfCacheTest, ReadsMoreWhereTooMuchIsLeftOut) {
  // Attention without a focus: whatever is left out is missed.
  const Outputs dense = LiveDense(0.1f);
  double distance[2];
  uint64_t read_bytes[2];
  for (const bool guards : {false, true}) {
    SequenceOptions options = Tiered(0.5, 0.1);
    options.cache.guard = guards;
    options.cache.guard_sample_steps = 1;
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    drive.query_scale = 0.1f;
    DrivenSequence sequence = drive.Add(options, 1);
    drive.Prefill(sequence, kPromptTokens, 64);
    // Behind the last change of level.
    Outputs outputs = Decode(drive, sequence, kNewTokens);
    constexpr uint32_t kChanging =
        RecallGuard::kMostLevel * RecallGuard::kRestUp;
    static_assert(kNewTokens > kChanging);
    outputs.erase(outputs.begin(), outputs.begin() + kChanging);
    distance[guards] =
        Distance(outputs, {dense.begin() + kChanging, dense.end()});
    const SequenceStats stats = cache.Stats(sequence.id);
    read_bytes[guards] = stats.read_bytes_last_step;
    ASSERT_EQ(stats.guard.has_value(), guards);
    if (!guards) continue;
    EXPECT_EQ(stats.guard->level(), RecallGuard::kMostLevel);
    EXPECT_EQ(stats.guard->changes().size(), RecallGuard::kMostLevel);
    EXPECT_EQ(stats.guard->changes()[0].n_tokens,
              kPromptTokens + RecallGuard::kRestUp);
  }
  EXPECT_LT(distance[1], 0.5 * distance[0]);
  EXPECT_GT(read_bytes[1], read_bytes[0]);
}

TEST(ColdAttentionTest, WhatCannotBeCopiedIsRefused) {
  PagedKvCache cache(kShape, Threads(1));
  SequenceOptions options = Tiered(0.5, 0.4);
  options.cache.kv_type = KvTypeName::kInt8;
  Status status = cache.AddSequence(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "tiers: copies are made of f16 keys and values only; set kv_type "
            "to f16");
  options = Tiered(0.5, 0.4);
  options.cache.recent_tokens = 111;
  status = cache.AddSequence(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "recent_tokens: 111 are too few for tiers; protect at least 112");
  options.cache.recent_tokens = 112;
  EXPECT_TRUE(cache.AddSequence(options).ok());
}

TEST(ColdAttentionTest, ABudgetThatCannotPayForCopiesIsRefusedWithTheLeast) {
  PagedKvCache cache(kShape, Threads(1));
  SequenceOptions options = Tiered(0.5, 0.4);
  options.cache.budget = {.kind = Budget::Kind::kTokens, .amount = 400};
  const Status status = cache.AddSequence(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_NE(message.find("pay for copies of the text (tiers, "),
            std::string::npos)
      << message;
  const size_t at = message.find("use at least ");
  ASSERT_NE(at, std::string::npos) << message;
  options.cache.budget = {.kind = Budget::Kind::kBytes,
                          .amount = std::stoull(message.substr(at + 13))};
  EXPECT_TRUE(cache.AddSequence(options).ok());
  --options.cache.budget.amount;
  EXPECT_FALSE(cache.AddSequence(options).ok());
}

}  // namespace
}  // namespace lkv
