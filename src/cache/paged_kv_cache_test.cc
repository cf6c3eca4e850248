// Budget, memory, refusals and bookkeeping of the paged cache.
#include "cache/paged_kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "cache/testing_constant_decoder.h"
#include "cache/testing_options.h"
#include "testing/cache_driver.h"
#include "testing/resident_bytes.h"

namespace lkv {
namespace {

constexpr KvShape kShape{
    .n_layers = 3, .n_kv_heads = 2, .group = 2, .head_dim = 64};

// Payload bytes that the page tables say are resident.
uint64_t PayloadBytes(const PagedKvCache& cache, SequenceId id,
                      const CacheOptions& options) {
  const KvType type = KvTypeOf(options);
  const size_t exact_pages =
      type == KvType::kInt8 ? PagesOf(options.sink_tokens) : 0;
  uint64_t bytes = 0;
  for (uint32_t layer = 0; layer < kShape.n_layers; ++layer) {
    for (uint32_t head = 0; head < kShape.n_kv_heads; ++head) {
      const size_t n_pages =
          PagesOf(cache.ResidentPositions(id, layer, head).size());
      const size_t n_exact = std::min(n_pages, exact_pages);
      bytes += n_exact * kShape.page_bytes(KvType::kF16) +
               (n_pages - n_exact) * kShape.page_bytes(type);
    }
  }
  return bytes;
}

TEST(PagedKvCacheTest, BudgetHoldsAtEveryMomentOfRandomScenarios) {
  std::mt19937 rng(11);
  constexpr PolicyName kPolicies[] = {
      PolicyName::kLookahead, PolicyName::kLru,
      PolicyName::kH2o,       PolicyName::kSnapKv,
      PolicyName::kTova,      PolicyName::kExpectedAttention};
  constexpr KvTypeName kTypes[] = {KvTypeName::kF16, KvTypeName::kInt8};
  for (int scenario = 0; scenario < 48; ++scenario) {
    SequenceOptions options =
        Small(kPolicies[scenario % 6],
              {.kind = Budget::Kind::kTokens, .amount = 150 + rng() % 500});
    if (options.cache.policy == PolicyName::kExpectedAttention) {
      options.cache.budget.amount += 200;  // what it knows of the queries
    }
    options.cache.kv_type = kTypes[scenario / 6 % 2];
    options.cache.sink_tokens = rng() % 20;
    options.cache.recent_tokens = 1 + rng() % 40;
    const uint32_t n_pinned = rng() % 20;
    if (rng() % 2 == 0) options.pinned = {{50, 50 + n_pinned}};
    if (rng() % 3 == 0) {
      options.cache.base_window_tokens = 100 + rng() % 200;
      options.cache.warmup_tokens = rng() % 300;
    }
    if (rng() % 3 == 0) {
      options.cache.eviction_rule = EvictionRule::kScoreThreshold;
    }
    if (rng() % 3 == 0) options.cache.lane_spread = LaneSpreadMode::kMass;
    if (rng() % 2 == 0) options.cache.unit = EvictionUnit::kRepack;
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    drive.query_scale = 1 + rng() % 5;
    DrivenSequence sequence = drive.Add(options, scenario);
    uint64_t most = 0;
    while (sequence.n_tokens < 900) {
      uint32_t n_new = cache.ChunkTokens(sequence.id, 1 + rng() % 200);
      if (rng() % 2 == 0) n_new = 1;
      ASSERT_FALSE(drive.Step(sequence, n_new).empty())
          << drive.status.message();
      const SequenceStats stats = cache.Stats(sequence.id);
      const uint64_t payload = PayloadBytes(cache, sequence.id, options.cache);
      ASSERT_LE(stats.resident_bytes_max, stats.budget_bytes);
      ASSERT_EQ(stats.resident_bytes, payload + stats.metadata_bytes);
      ASSERT_EQ(stats.n_tokens, sequence.n_tokens);
      const KvType type = KvTypeOf(options.cache);
      uint64_t full_bytes = sequence.n_tokens * kShape.bytes_per_token(type);
      if (type == KvType::kInt8) {
        full_bytes += std::min(PagesOf(sequence.n_tokens),
                               PagesOf(options.cache.sink_tokens)) *
                      kShape.n_lanes() *
                      (kShape.page_bytes(KvType::kF16) -
                       kShape.page_bytes(KvType::kInt8));
      }
      ASSERT_EQ(stats.full_bytes, full_bytes);
      most = std::max(most, stats.resident_bytes);
    }
    EXPECT_EQ(cache.Stats(sequence.id).resident_bytes_max, most);
    EXPECT_GT(cache.Stats(sequence.id).evicted_tokens, 0u);
  }
}

TEST(PagedKvCacheTest, BudgetIsUsedToTheLastPages) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence sequence =
      drive.Add(Small(PolicyName::kLookahead,
                      {.kind = Budget::Kind::kTokens, .amount = 320}),
                1);
  drive.Prefill(sequence, 700, 512);
  for (int i = 0; i < 100; ++i) drive.Step(sequence, 1);
  const SequenceStats stats = cache.Stats(sequence.id);
  // Each lane has one page to spare for its next tokens, and may be short of
  // one that the budget pays for only in part.
  EXPECT_GT(stats.resident_bytes_max,
            stats.budget_bytes -
                2 * kShape.n_lanes() * kShape.page_bytes(KvType::kF16));
}

TEST(PagedKvCacheTest, ChunksAreAQuarterOfABudgetThatIsTooSmall) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Small(
      PolicyName::kLookahead, {.kind = Budget::Kind::kTokens, .amount = 640});
  DrivenSequence sequence = drive.Add(options, 1);
  const uint32_t chunk = cache.ChunkTokens(sequence.id, 512);
  EXPECT_EQ(chunk % kPageTokens, 0u);
  EXPECT_LE(chunk, 160u);
  EXPECT_GE(chunk, 128u);
  EXPECT_EQ(cache.ChunkTokens(sequence.id, 48), 48u);
  // The next one ends at a multiple of the size again.
  drive.Step(sequence, 10);
  EXPECT_EQ(cache.ChunkTokens(sequence.id, 512), chunk - 10);
  EXPECT_EQ(cache.ChunkTokens(sequence.id, 0), 0u);

  options.cache.budget = {};
  DrivenSequence roomy = drive.Add(options, 2);
  EXPECT_EQ(cache.ChunkTokens(roomy.id, 333), 333u);
}

TEST(PagedKvCacheTest, RemovingASequenceGivesAllItsMemoryBack) {
  // 72 lanes of 1,024 tokens: 18 MiB.
  const KvShape shape{
      .n_layers = 24, .n_kv_heads = 3, .group = 1, .head_dim = 64};
  constexpr size_t kMiB = 1 << 20;
  PagedKvCache cache(shape, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Small(PolicyName::kFull, {});
  options.prompt_tokens = 1024;
  DrivenSequence kept = drive.Add(options, 1);
  drive.Prefill(kept, 64, 64);
  DrivenSequence sequence = drive.Add(options, 1);
  drive.Prefill(sequence, 1024, 64);
  const size_t before = ResidentBytes();
  cache.RemoveSequence(sequence.id);
  EXPECT_LT(ResidentBytes(), before - 17 * kMiB);
  EXPECT_EQ(cache.ResidentPositions(kept.id, 23, 2).size(), 64u);
}

// ThreadSanitizer's own memory grows with every address touched, fourfold.
#if !defined(__SANITIZE_THREAD__)
TEST(PagedKvCacheTest, ShrinkingWindowGivesMemoryBackToTheSystem) {
  const KvShape shape{
      .n_layers = 24, .n_kv_heads = 3, .group = 1, .head_dim = 64};
  constexpr size_t kMiB = 1 << 20;
  PagedKvCache cache(shape, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Small(
      PolicyName::kLookahead, {.kind = Budget::Kind::kTokens, .amount = 2560});
  options.prompt_tokens = 2048;
  options.max_new_tokens = 1000;
  // All of the budget until warm-up ends, a tenth of it after.
  options.cache.base_window_tokens = 256;
  options.cache.window_strategy = WindowStrategy::kStatic;
  options.cache.warmup_tokens = 2100;
  DrivenSequence sequence = drive.Add(options, 1);
  drive.Prefill(sequence, 2048, 256);
  ConstantDecoder decoder(cache, 1);
  const size_t full = ResidentBytes();
  const SequenceStats stats = cache.Stats(sequence.id);
  EXPECT_GT(stats.resident_bytes, 35 * kMiB);
  const StepEntry entry{sequence.id, 1};
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(decoder.Step({&entry, 1}));
  EXPECT_LT(cache.Stats(sequence.id).resident_bytes, 5 * kMiB);
  // 5 MiB in use, 16 pages of 4 KiB for each of 72 lanes to grow into, and two
  // slabs of 2 MiB that are partly filled.
  EXPECT_LT(ResidentBytes(), full - 35 * kMiB + (5 + 5 + 4) * kMiB);
  // What has moved is still where attention finds it.
  EXPECT_EQ(cache.ResidentPositions(sequence.id, 5, 1)[0], 0u);
}
#endif

TEST(PagedKvCacheTest, AbsurdSequencesAreRefusedNotFatal) {
  PagedKvCache cache(kShape, Threads(1));
  SequenceOptions options;
  options.prompt_tokens = 4000000000u;
  Result<SequenceId> id = cache.AddSequence(options);
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.status().code(), StatusCode::kOutOfMemory);
  // 100 TB: more than any machine, fewer than 2^32 pages.
  const KvShape wide{
      .n_layers = 96, .n_kv_heads = 96, .group = 1, .head_dim = 256};
  PagedKvCache wide_cache(wide, Threads(1));
  options.prompt_tokens = 2000000;
  id = wide_cache.AddSequence(options);
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.status().code(), StatusCode::kOutOfMemory);
}

TEST(PagedKvCacheTest, FullPolicyRefusesTheStepBeyondItsText) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Small(PolicyName::kFull, {});
  options.prompt_tokens = 60;
  options.max_new_tokens = 4;
  DrivenSequence sequence = drive.Add(options, 1);
  drive.Prefill(sequence, 64, 64);
  EXPECT_TRUE(drive.Step(sequence, 1).empty());
  EXPECT_EQ(drive.status.code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(cache.Stats(sequence.id).n_tokens, 64u);
}

TEST(PagedKvCacheTest, EvictingPolicyGoesOnBeyondTheAnnouncedText) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Small(PolicyName::kLookahead, {});
  options.prompt_tokens = 300;
  options.max_new_tokens = 20;
  DrivenSequence sequence = drive.Add(options, 1);
  drive.Prefill(sequence, 300, 64);
  for (int i = 0; i < 200; ++i) {
    ASSERT_FALSE(drive.Step(sequence, 1).empty()) << drive.status.message();
    if (sequence.n_tokens <= 320) {
      ASSERT_EQ(cache.Stats(sequence.id).evicted_tokens, 0u);
    }
  }
  const SequenceStats stats = cache.Stats(sequence.id);
  EXPECT_LE(stats.resident_bytes_max, stats.budget_bytes);
  EXPECT_GT(stats.evicted_tokens, 150u);
}

TEST(PagedKvCacheTest, ARefusedStepLeavesTheOthersUntouched) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Small(PolicyName::kFull, {});
  DrivenSequence good = drive.Add(options, 1);
  options.prompt_tokens = 16;
  options.max_new_tokens = 0;
  DrivenSequence bad = drive.Add(options, 2);
  drive.Prefill(good, 40, 64);
  drive.Prefill(bad, 16, 64);
  DrivenSequence* both[] = {&good, &bad};
  const uint32_t n_new[] = {20, 1};
  EXPECT_TRUE(drive.Step(both, n_new).empty());
  EXPECT_EQ(cache.ResidentPositions(good.id, 0, 0).size(), 40u);
  EXPECT_FALSE(drive.Step(good, 1).empty());
}

TEST(PagedKvCacheTest, ExplainNamesTheReasonOfEveryPage) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Small(
      PolicyName::kLookahead, {.kind = Budget::Kind::kTokens, .amount = 320});
  options.pinned = {{100, 110}};
  DrivenSequence sequence = drive.Add(options, 1);
  drive.Prefill(sequence, 695, 512);
  const std::vector<PageExplanation> pages = cache.Explain(sequence.id, 1, 1);
  const std::vector<uint32_t> positions =
      cache.ResidentPositions(sequence.id, 1, 1);
  ASSERT_EQ(pages.size(), (positions.size() + 15) / 16);
  uint32_t n_tokens = 0;
  for (size_t i = 0; i < pages.size(); ++i) {
    EXPECT_EQ(pages[i].positions.front(), positions[n_tokens]);
    n_tokens += static_cast<uint32_t>(pages[i].positions.size());
    PageProtection expected = PageProtection::kNone;
    if (pages[i].positions.front() == 0) expected = PageProtection::kSink;
    if (pages[i].positions.front() == 96) expected = PageProtection::kPinned;
    if (pages[i].positions.front() + 16 > 695 - 32)
      expected = PageProtection::kRecent;
    EXPECT_EQ(pages[i].protection, expected) << pages[i].positions.front();
    EXPECT_GT(pages[i].attention, 0);
  }
  EXPECT_EQ(n_tokens, positions.size());
}

TEST(PagedKvCacheTest, MetadataIsAtMostFourPercentOfPayloadEightOfInt8) {
  for (const auto& [type, unit] :
       {std::pair{KvTypeName::kF16, EvictionUnit::kPage},
        {KvTypeName::kInt8, EvictionUnit::kPage},
        {KvTypeName::kF16, EvictionUnit::kRepack},
        {KvTypeName::kInt8, EvictionUnit::kRepack}}) {
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    SequenceOptions options =
        Small(PolicyName::kLookahead,
              {.kind = Budget::Kind::kTokens, .amount = 2048});
    options.cache.kv_type = type;
    options.cache.unit = unit;
    options.cache.base_window_tokens = 1600;
    options.prompt_tokens = 2800;
    options.cache.window_strategy = WindowStrategy::kDynamic;
    DrivenSequence sequence = drive.Add(options, 1);
    drive.Prefill(sequence, 2400, 512);
    const SequenceStats stats = cache.Stats(sequence.id);
    const double payload_bytes =
        static_cast<double>(stats.resident_bytes - stats.metadata_bytes);
    EXPECT_LT(stats.metadata_bytes,
              (type == KvTypeName::kInt8 ? 0.08 : 0.04) * payload_bytes);
  }
}

TEST(PagedKvCacheTest, Int8PaysForTheOffsetsOfItsKeys) {
  const auto metadata_bytes = [](KvTypeName type) {
    PagedKvCache cache(kShape, Threads(1));
    SequenceOptions options =
        Small(PolicyName::kLru, {.kind = Budget::Kind::kTokens, .amount = 512});
    options.cache.kv_type = type;
    return cache.Stats(cache.AddSequence(options).value()).metadata_bytes;
  };
  EXPECT_EQ(metadata_bytes(KvTypeName::kInt8),
            metadata_bytes(KvTypeName::kF16) +
                kShape.n_lanes() * kShape.head_dim * sizeof(float));
}

TEST(PagedKvCacheTest, Int8PaysForNoMoreSinksThanTheTextHas) {
  const auto budget_bytes = [](uint32_t sink_tokens) {
    PagedKvCache cache(kShape, Threads(1));
    SequenceOptions options =
        Small(PolicyName::kLru, {.kind = Budget::Kind::kFull});
    options.cache.kv_type = KvTypeName::kInt8;
    options.cache.sink_tokens = sink_tokens;
    options.prompt_tokens = 30;
    options.max_new_tokens = 2;
    return cache.Stats(cache.AddSequence(options).value()).budget_bytes;
  };
  EXPECT_EQ(budget_bytes(65536), budget_bytes(32));
}

TEST(PagedKvCacheTest, ABudgetIsTheShareOfTheTextExpectedAfterTheTurn) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence chat = drive.Add(Chat(PolicyName::kLookahead, 3000), 1);
  const auto quarter = [](uint64_t n_tokens) {
    return n_tokens * kShape.bytes_per_token(KvType::kF16) / 4;
  };

  // What must stay is more than a quarter of 80 tokens: all of them stay.
  ASSERT_TRUE(cache.AnnounceTurn(chat.id, 40, 40).ok());
  EXPECT_GT(cache.Stats(chat.id).budget_bytes, quarter(80));
  EXPECT_EQ(cache.ChunkTokens(chat.id, 40), 40u);
  drive.Prefill(chat, 40, 512);
  for (int i = 0; i < 20; ++i) drive.Step(chat, 1);
  EXPECT_EQ(cache.Stats(chat.id).evicted_tokens, 0u);

  ASSERT_TRUE(cache.AnnounceTurn(chat.id, 700, 140).ok());
  EXPECT_EQ(cache.Stats(chat.id).budget_bytes, quarter(60 + 700 + 140));
  drive.Prefill(chat, 700, 512);
  EXPECT_GT(cache.Stats(chat.id).evicted_tokens, 0u);

  // The turn was shorter than announced, and so is the next one.
  ASSERT_TRUE(cache.AnnounceTurn(chat.id, 10, 20).ok());
  EXPECT_EQ(cache.Stats(chat.id).budget_bytes, quarter(900));
  drive.Prefill(chat, 10, 512);

  ASSERT_TRUE(cache.AnnounceTurn(chat.id, 2000, 230).ok());
  EXPECT_EQ(cache.Stats(chat.id).budget_bytes, quarter(3000));
  drive.Prefill(chat, 2000, 512);
  for (int i = 0; i < 100; ++i) drive.Step(chat, 1);
  // The room of the last turn is used, not only granted.
  EXPECT_GT(
      cache.Stats(chat.id).resident_bytes_max,
      quarter(3000) - 2 * kShape.n_lanes() * kShape.page_bytes(KvType::kF16));

  const Status too_long = cache.AnnounceTurn(chat.id, 131, 0);
  EXPECT_EQ(too_long.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(too_long.message().find("3000"), std::string::npos);
  EXPECT_TRUE(cache.AnnounceTurn(chat.id, 130, 0).ok());
}

TEST(PagedKvCacheTest, BudgetHoldsAtEveryMomentOfTurnsOfAnyLength) {
  std::mt19937 rng(5);
  constexpr PolicyName kPolicies[] = {PolicyName::kLookahead, PolicyName::kH2o,
                                      PolicyName::kStreaming};
  for (int scenario = 0; scenario < 12; ++scenario) {
    SequenceOptions options = Chat(kPolicies[scenario % 3], 1500);
    options.cache.budget.share = 0.1 + 0.1 * (rng() % 10);
    options.cache.recent_tokens = 1 + rng() % 40;
    if (rng() % 2 == 0) options.pinned = {{20, 30}, {50, 65}};
    if (rng() % 2 == 0) {
      options.cache.base_window_tokens = 100 + rng() % 200;
      options.cache.warmup_tokens = rng() % 300;
      options.cache.window_strategy =
          rng() % 2 == 0 ? WindowStrategy::kHybrid : WindowStrategy::kDynamic;
    }
    if (rng() % 3 == 0) options.cache.lane_spread = LaneSpreadMode::kMass;
    if (rng() % 2 == 0) options.cache.unit = EvictionUnit::kRepack;
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    drive.query_scale = 1 + rng() % 5;
    DrivenSequence chat = drive.Add(options, scenario);
    uint64_t budget_before = 0;
    while (chat.n_tokens < 1200) {
      const uint32_t n_prompt = 1 + rng() % 200;
      const uint32_t n_new = rng() % 100;
      ASSERT_TRUE(cache.AnnounceTurn(chat.id, n_prompt, n_new).ok());
      const uint64_t budget = cache.Stats(chat.id).budget_bytes;
      ASSERT_GE(budget, budget_before);
      budget_before = budget;
      const uint32_t prompt_end = chat.n_tokens + n_prompt;
      const uint32_t end = prompt_end + rng() % (n_new + 1);
      while (chat.n_tokens < end) {
        const uint32_t n =
            chat.n_tokens < prompt_end
                ? cache.ChunkTokens(chat.id, prompt_end - chat.n_tokens)
                : 1;
        ASSERT_FALSE(drive.Step(chat, n).empty()) << drive.status.message();
        const SequenceStats stats = cache.Stats(chat.id);
        ASSERT_LE(stats.resident_bytes, budget);
        ASSERT_LE(stats.resident_bytes_max, budget);
        ASSERT_EQ(
            stats.resident_bytes,
            PayloadBytes(cache, chat.id, options.cache) + stats.metadata_bytes);
      }
    }
  }
}

TEST(PagedKvCacheTest, ATurnAnnouncedFirstIsLikeAnAdmissionForIt) {
  std::vector<uint32_t> resident[2];
  for (int announced = 0; announced < 2; ++announced) {
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    SequenceOptions options = Chat(PolicyName::kLookahead, 1000);
    options.cache.lane_spread = LaneSpreadMode::kMass;
    options.cache.base_window_tokens = 192;
    options.cache.min_window_tokens = 128;
    options.cache.max_window_tokens = 224;
    options.cache.window_strategy = WindowStrategy::kHybrid;
    if (announced == 0) {
      options.prompt_tokens = 900;
      options.max_new_tokens = 100;
    }
    DrivenSequence sequence = drive.Add(options, 1);
    ASSERT_TRUE(cache.AnnounceTurn(sequence.id, 900, 100).ok());
    drive.Prefill(sequence, 900, 512);
    for (int i = 0; i < 100; ++i) drive.Step(sequence, 1);
    EXPECT_GT(cache.Stats(sequence.id).evicted_tokens, 700u);
    for (uint32_t layer = 0; layer < kShape.n_layers; ++layer) {
      for (uint32_t pos : cache.ResidentPositions(sequence.id, layer, 1)) {
        resident[announced].push_back(pos);
      }
    }
  }
  EXPECT_EQ(resident[0], resident[1]);
}

TEST(PagedKvCacheTest, NothingLeavesForTheSakeOfABudgetThatHasGrown) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence chat = drive.Add(Chat(PolicyName::kLookahead, 4000), 1);
  ASSERT_TRUE(cache.AnnounceTurn(chat.id, 608, 100).ok());
  // Every lane plans what leaves next, and would do so at its turns.
  drive.Prefill(chat, 608, 512);
  const uint64_t n_evicted = cache.Stats(chat.id).evicted_tokens;
  ASSERT_GT(n_evicted, 300u);
  ASSERT_TRUE(cache.AnnounceTurn(chat.id, 1, 3000).ok());
  for (uint32_t i = 0; i < 2 * kPageTokens; ++i) drive.Step(chat, 1);
  EXPECT_EQ(cache.Stats(chat.id).evicted_tokens, n_evicted);
}

}  // namespace
}  // namespace lkv
