// Forks of a sequence in the paged cache: each is what it would be alone, and
// their common text is in memory once.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "cache/dense_kv_cache.h"
#include "cache/paged_kv_cache.h"
#include "cache/testing_cases.h"
#include "cache/testing_options.h"
#include "testing/cache_driver.h"
#include "testing/resident_bytes.h"

namespace lkv {
namespace {

DrivenSequence Fork(KvCache& cache, const DrivenSequence& parent,
                    uint32_t seed) {
  Result<SequenceId> id = cache.ForkSequence(parent.id);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return {id.ok() ? *id : SequenceId{}, seed, parent.n_tokens};
}

// Of one sequence: its outputs after the common text, and what it kept.
struct Life {
  std::vector<std::vector<std::vector<float>>> outputs;
  std::vector<std::vector<uint32_t>> residents;

  bool operator==(const Life&) const = default;
};

// Steps of both sequences together, prefill and decode.
void LiveOn(CacheDriver& drive, DrivenSequence& a, DrivenSequence& b,
            Life* life_a, Life* life_b) {
  DrivenSequence* const both[] = {&a, &b};
  for (uint32_t step = 0; step < 60; ++step) {
    const uint32_t n_new[] = {step % 9 == 8 ? 20u : 1u,
                              step % 7 == 6 ? 5u : 1u};
    const auto out = drive.Step(both, n_new);
    ASSERT_FALSE(out.empty()) << drive.status.message();
    const size_t row = size_t{kCaseShape.n_heads()} * kCaseShape.head_dim;
    std::vector<std::vector<float>> of_a, of_b;
    for (const std::vector<float>& layer : out) {
      const auto split =
          layer.begin() + static_cast<std::ptrdiff_t>(n_new[0] * row);
      of_a.emplace_back(layer.begin(), split);
      of_b.emplace_back(split, layer.end());
    }
    life_a->outputs.push_back(of_a);
    life_b->outputs.push_back(of_b);
  }
}

class ForkTest : public testing::TestWithParam<Case> {};

// The fork and its parent against two sequences that read the common text each
// for itself.
TEST_P(ForkTest, GoesOnAsIfItHadReadTheTextAlone) {
  const Case& test = GetParam();
  Life forked[2], alone[2];
  for (const bool forks : {true, false}) {
    PagedKvCache cache(kCaseShape, Threads(2));
    CacheDriver drive(cache, 2);
    drive.query_scale = 3;
    DrivenSequence a = drive.Add(test.options, 1);
    drive.Prefill(a, test.common_tokens, 64);
    DrivenSequence b;
    if (forks) {
      b = Fork(cache, a, 2);
    } else {
      b = drive.Add(test.options, 1);
      drive.Prefill(b, test.common_tokens, 64);
      b.seed = 2;
    }
    Life* lives = forks ? forked : alone;
    LiveOn(drive, a, b, &lives[0], &lives[1]);
    lives[0].residents = Residents(cache, a.id);
    lives[1].residents = Residents(cache, b.id);
    for (const DrivenSequence& sequence : {a, b}) {
      const SequenceStats stats = cache.Stats(sequence.id);
      EXPECT_LE(stats.resident_bytes_max, stats.budget_bytes);
      EXPECT_EQ(stats.n_tokens, sequence.n_tokens);
    }
  }
  EXPECT_TRUE(forked[0] == alone[0]) << "the parent";
  EXPECT_TRUE(forked[1] == alone[1]) << "the fork";
  EXPECT_FALSE(forked[0].outputs == forked[1].outputs);
}

INSTANTIATE_TEST_SUITE_P(Cases, ForkTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(ForkedSequencesTest, DenseForksAgreeWithPagedOnes) {
  PagedKvCache paged(kCaseShape, Threads(1));
  DenseKvCache dense(kCaseShape);
  std::vector<std::vector<float>> rows;
  for (KvCache* cache :
       {static_cast<KvCache*>(&paged), static_cast<KvCache*>(&dense)}) {
    CacheDriver drive(*cache, 1);
    DrivenSequence parent = drive.Add(Options(PolicyName::kFull, 0), 1);
    drive.Prefill(parent, 100, 64);
    DrivenSequence fork = Fork(*cache, parent, 2);
    drive.Prefill(parent, 30, 64);
    rows.push_back(drive.Prefill(fork, 30, 64));
  }
  ASSERT_EQ(rows[0].size(), rows[1].size());
  ASSERT_FALSE(rows[0].empty());
  for (size_t i = 0; i < rows[0].size(); ++i) {
    ASSERT_NEAR(rows[0][i], rows[1][i], 2e-3);
  }
}

TEST(ForkedSequencesTest, GrowthCountsTheCopyOfOpenPages) {
  PagedKvCache cache(kCaseShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence parent = drive.Add(Options(PolicyName::kFull, 0), 1);
  drive.Prefill(parent, 633, 64);
  const uint64_t alone = cache.Stats(parent.id).growth_bytes;
  DrivenSequence fork = Fork(cache, parent, 2);
  EXPECT_EQ(cache.Stats(fork.id).growth_bytes,
            alone + kCaseShape.n_lanes() * kCaseShape.page_bytes(KvType::kF16));
  drive.Step(fork, 1);
  EXPECT_EQ(cache.Stats(fork.id).growth_bytes, alone);
  EXPECT_EQ(cache.Stats(parent.id).growth_bytes, alone);
}

TEST(ForkedSequencesTest, AForkBeforeTheFirstTokenIsAnotherEmptySequence) {
  PagedKvCache cache(kCaseShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence parent = drive.Add(Options(PolicyName::kLookahead, 300), 1);
  DrivenSequence fork = Fork(cache, parent, 1);
  EXPECT_EQ(cache.Stats(fork.id).n_tokens, 0u);
  EXPECT_EQ(cache.Stats(fork.id).shared_bytes, 0u);
  EXPECT_EQ(drive.Prefill(parent, 400, 64), drive.Prefill(fork, 400, 64));
}

// The longer turn of one changes nothing for the other.
TEST(ForkedSequencesTest, TurnsAreAnnouncedToEachForItself) {
  PagedKvCache cache(kCaseShape, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Options(PolicyName::kLookahead, 0);
  options.cache.budget = {.kind = Budget::Kind::kShare, .share = 0.5};
  options.max_tokens = 4000;
  DrivenSequence parent = drive.Add(options, 1);
  drive.Prefill(parent, 640, 64);
  const uint64_t budget_bytes = cache.Stats(parent.id).budget_bytes;
  DrivenSequence fork = Fork(cache, parent, 2);
  ASSERT_TRUE(cache.AnnounceTurn(fork.id, 1000, 500).ok());
  EXPECT_GT(cache.Stats(fork.id).budget_bytes, budget_bytes);
  EXPECT_EQ(cache.Stats(parent.id).budget_bytes, budget_bytes);
  EXPECT_FALSE(drive.Prefill(fork, 1000, 64).empty());
  EXPECT_FALSE(drive.Prefill(parent, 300, 64).empty());
  for (const DrivenSequence& sequence : {parent, fork}) {
    const SequenceStats stats = cache.Stats(sequence.id);
    EXPECT_LE(stats.resident_bytes_max, stats.budget_bytes);
  }
}

TEST(ForkedSequencesTest, GrowthCountsWhatOwnPagesMayReplace) {
  PagedKvCache cache(kCaseShape, Threads(1));
  CacheDriver drive(cache, 1);
  for (const bool evicts : {false, true}) {
    const SequenceOptions options = evicts
                                        ? Options(PolicyName::kLookahead, 300)
                                        : Options(PolicyName::kFull, 0);
    DrivenSequence parent = drive.Add(options, 1);
    drive.Prefill(parent, 640, 64);
    const SequenceStats alone = cache.Stats(parent.id);
    EXPECT_EQ(alone.shared_bytes, 0u);
    EXPECT_EQ(alone.growth_bytes, alone.fill_bytes - alone.resident_bytes);
    const DrivenSequence fork = Fork(cache, parent, 2);
    const SequenceStats stats = cache.Stats(fork.id);
    EXPECT_GT(stats.shared_bytes, 0u);
    EXPECT_EQ(stats.growth_bytes, stats.fill_bytes - stats.resident_bytes +
                                      (evicts ? stats.shared_bytes : 0));
  }
}

// Forks of forks that evict, each against a sequence that read the same text
// alone.
TEST(ForkedSequencesTest, ForksOfForksEvictAsIfEachWereAlone) {
  SequenceOptions options = Options(PolicyName::kLookahead, 300);
  options.cache.kv_type = KvTypeName::kInt8;
  // The seeds of a text's parts, 100 tokens each.
  const std::vector<std::vector<uint32_t>> texts = {
      {1, 1, 1, 1}, {1, 2, 2, 2}, {1, 2, 3, 3}, {1, 2, 3, 4}};
  std::vector<std::vector<float>> alone;
  for (const std::vector<uint32_t>& text : texts) {
    PagedKvCache cache(kCaseShape, Threads(1));
    CacheDriver drive(cache, 1);
    DrivenSequence sequence = drive.Add(options, 0);
    std::vector<float> rows;
    for (uint32_t seed : text) {
      sequence.seed = seed;
      rows = drive.Prefill(sequence, 100, 32);
    }
    alone.push_back(rows);
  }
  PagedKvCache cache(kCaseShape, Threads(1));
  CacheDriver drive(cache, 1);
  std::vector<DrivenSequence> all = {drive.Add(options, 1)};
  drive.Prefill(all[0], 100, 32);
  for (uint32_t seed : {2u, 3u, 4u}) {
    all.push_back(Fork(cache, all.back(), seed));
    drive.Prefill(all.back(), 100, 32);
  }
  std::vector<std::vector<float>> forked(4);
  for (uint32_t i : {2u, 0u, 1u, 3u}) {
    // Those that had been forked before are up to 200 tokens behind.
    while (all[i].n_tokens < 400) forked[i] = drive.Prefill(all[i], 100, 32);
    if (i != 3) cache.RemoveSequence(all[i].id);
  }
  EXPECT_EQ(cache.Stats(all[3].id).shared_bytes, 0u);
  EXPECT_GT(cache.Stats(all[3].id).evicted_tokens, 0u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(forked[i], alone[i]) << i;
}

// Forks of forks that come and go, each against the dense cache.
TEST(ForkedSequencesTest, AnyTreeOfForksReadsWhatTheDenseCacheReads) {
  PagedKvCache paged(kCaseShape, Threads(1));
  DenseKvCache dense(kCaseShape);
  CacheDriver drive_paged(paged, 1);
  CacheDriver drive_dense(dense, 1);
  struct Pair {
    DrivenSequence paged;
    DrivenSequence dense;
  };
  const SequenceOptions options = Options(PolicyName::kFull, 0);
  std::vector<Pair> all = {
      {drive_paged.Add(options, 1), drive_dense.Add(options, 1)}};
  std::mt19937 rng(5);
  for (uint32_t round = 0; round < 150; ++round) {
    Pair& one = all[rng() % all.size()];
    const uint32_t action = rng() % 8;
    if (action == 0 && all.size() < 8) {
      all.push_back({Fork(paged, one.paged, round + 2),
                     Fork(dense, one.dense, round + 2)});
      continue;
    }
    if (action == 1 && all.size() > 2) {
      paged.RemoveSequence(one.paged.id);
      dense.RemoveSequence(one.dense.id);
      one = all.back();
      all.pop_back();
      continue;
    }
    const uint32_t n_new = 1 + rng() % 40;
    if (one.paged.n_tokens + n_new > 1000) continue;
    const auto from_paged = drive_paged.Step(one.paged, n_new);
    const auto from_dense = drive_dense.Step(one.dense, n_new);
    ASSERT_FALSE(from_paged.empty()) << drive_paged.status.message();
    for (uint32_t layer = 0; layer < kCaseShape.n_layers; ++layer) {
      for (size_t i = 0; i < from_dense[layer].size(); ++i) {
        ASSERT_NEAR(from_paged[layer][i], from_dense[layer][i], 2e-3);
      }
    }
  }
}

// Sanitizers keep what was freed.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// 72 lanes of 1,024 tokens: 18 MiB.
constexpr KvShape kLarge{
    .n_layers = 24, .n_kv_heads = 3, .group = 1, .head_dim = 64};
constexpr size_t kMiB = 1 << 20;

TEST(ForkedSequencesTest, TheCommonTextIsInMemoryOnceUntilTheLastOneGoes) {
  PagedKvCache cache(kLarge, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Options(PolicyName::kFull, 0);
  options.prompt_tokens = 1100;
  const size_t at_first = ResidentBytes();
  std::vector<DrivenSequence> all = {drive.Add(options, 1)};
  drive.Prefill(all[0], 1024, 64);
  const size_t before = ResidentBytes();
  for (uint32_t i = 1; i < 8; ++i) all.push_back(Fork(cache, all[0], i));
  for (DrivenSequence& sequence : all) drive.Step(sequence, 1);
  // An extent for each lane is 4.5 MiB, in slabs of 2 MiB; the text is 18 MiB.
  EXPECT_LT(ResidentBytes(), before + 8 * 7 * kMiB);
  const uint64_t text_bytes = 1024 * kLarge.bytes_per_token(KvType::kF16);
  for (const DrivenSequence& sequence : all) {
    const SequenceStats stats = cache.Stats(sequence.id);
    EXPECT_EQ(stats.shared_bytes, text_bytes);
    EXPECT_GE(stats.resident_bytes, text_bytes);
  }
  while (all.size() > 1) {
    cache.RemoveSequence(all.front().id);  // the parent first
    all.erase(all.begin());
  }
  EXPECT_EQ(cache.Stats(all[0].id).shared_bytes, 0u);
  EXPECT_GT(ResidentBytes(), at_first + 17 * kMiB);
  ASSERT_FALSE(drive.Step(all[0], 1).empty());
  cache.RemoveSequence(all[0].id);
  EXPECT_LT(ResidentBytes(), at_first + 8 * kMiB);
}

// What a sequence evicts of the shared pages takes memory until the others have
// evicted it, too; then the holes that it leaves are closed.
TEST(ForkedSequencesTest, ASequenceWhoseForksAreGoneKeepsToItsBudgetInMemory) {
  PagedKvCache cache(kLarge, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Options(PolicyName::kRandom, 1024);
  options.prompt_tokens = 4000;
  options.max_new_tokens = 2000;
  const size_t at_first = ResidentBytes();
  DrivenSequence parent = drive.Add(options, 1);
  drive.Prefill(parent, 1400, 64);
  const SequenceId fork = Fork(cache, parent, 2).id;
  cache.RemoveSequence(fork);
  drive.Prefill(parent, 1200, 64);
  for (int i = 0; i < 200; ++i) drive.Step(parent, 1);
  const SequenceStats stats = cache.Stats(parent.id);
  EXPECT_EQ(stats.shared_bytes, 0u);
  // Extents that lanes have open, scratch, and one slab of each pool.
  EXPECT_LT(ResidentBytes(), at_first + stats.budget_bytes + 12 * kMiB);
}

// A fork as a checkpoint of every turn, the one before dropped.
TEST(ForkedSequencesTest, PoolsOfEarlierForksAreEmptiedAndDropped) {
  PagedKvCache cache(kLarge, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Options(PolicyName::kFull, 0);
  options.prompt_tokens = 2000;
  DrivenSequence parent = drive.Add(options, 1);
  drive.Prefill(parent, 100, 64);
  const auto turn = [&] {
    const SequenceId checkpoint = Fork(cache, parent, 2).id;
    for (int i = 0; i < 17; ++i) drive.Step(parent, 1);
    cache.RemoveSequence(checkpoint);
    for (int i = 0; i < 8; ++i) drive.Step(parent, 1);
  };
  for (int i = 0; i < 4; ++i) turn();
  const size_t before = ResidentBytes();
  for (int i = 0; i < 40; ++i) turn();
  const uint64_t text_bytes =
      40 * 25 * kLarge.bytes_per_token(KvType::kF16);  // 17.6 MiB
  EXPECT_LT(ResidentBytes(), before + text_bytes + 8 * kMiB);
}
#endif

}  // namespace
}  // namespace lkv
