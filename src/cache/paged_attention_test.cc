// Attention over pages against the dense oracle, nothing evicted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <random>
#include <tuple>
#include <vector>

#include "cache/dense_kv_cache.h"
#include "cache/paged_kv_cache.h"
#include "cache/testing_options.h"
#include "kernels/kernel_table.h"
#include "testing/cache_driver.h"

namespace lkv {
namespace {

SequenceOptions FullOptions(uint32_t n_tokens, KvTypeName type) {
  SequenceOptions options;
  options.cache.policy = PolicyName::kFull;
  options.cache.kv_type = type;
  options.prompt_tokens = n_tokens;
  return options;
}

double LargestDifference(const std::vector<float>& a,
                         const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    // Not a number is the largest difference of all.
    const double difference = std::fabs(double{a[i]} - b[i]);
    if (!(difference <= largest)) largest = difference;
    if (std::isnan(largest)) break;
  }
  return largest;
}

// Values are of size 1 and outputs are weighted means of them; rounding to f16
// moves a value by 5e-4 at most and a logit of a standard deviation of 1 by
// about as much.
constexpr double kF16Tolerance = 4e-3;
constexpr double kBF16Tolerance = 3e-2;
// Rows of int8 are rounded to 1/254 of their largest element, 1.7.
constexpr double kInt8Tolerance = 3e-2;

class PagedAttentionTest
    : public testing::TestWithParam<std::tuple<uint32_t, uint32_t>> {
 protected:
  KvShape shape_{.n_layers = 2,
                 .n_kv_heads = 2,
                 .group = std::get<1>(GetParam()),
                 .head_dim = std::get<0>(GetParam())};
};

TEST_P(PagedAttentionTest, EqualsDenseAttentionForAnyChunksAndLengths) {
  const KernelTable* kernels = SelectKernels(nullptr);
  std::mt19937 rng(shape_.head_dim * 16 + shape_.group);
  for (KvTypeName type :
       {KvTypeName::kF16, KvTypeName::kBF16, KvTypeName::kInt8}) {
    PagedKvCache paged(shape_, {.kernels = kernels, .max_threads = 1});
    DenseKvCache dense(shape_);
    CacheDriver drive_paged(paged, 1);
    CacheDriver drive_dense(dense, 1);
    constexpr uint32_t kSequences = 3;
    constexpr uint32_t kTokens = 350;
    std::vector<DrivenSequence> in_paged;
    std::vector<DrivenSequence> in_dense;
    for (uint32_t i = 0; i < kSequences; ++i) {
      in_paged.push_back(drive_paged.Add(FullOptions(kTokens, type), i));
      in_dense.push_back(drive_dense.Add({}, i));
    }
    const double tolerance = type == KvTypeName::kF16    ? kF16Tolerance
                             : type == KvTypeName::kBF16 ? kBF16Tolerance
                                                         : kInt8Tolerance;
    for (int step = 0; step < 14; ++step) {
      std::vector<DrivenSequence*> paged_part;
      std::vector<DrivenSequence*> dense_part;
      std::vector<uint32_t> n_new;
      for (uint32_t i = 0; i < kSequences; ++i) {
        if (rng() % 4 == 0) continue;
        // Chunks of every size, and plenty of single tokens.
        const uint32_t n = rng() % 2 == 0 ? 1 : 1 + rng() % 70;
        if (in_paged[i].n_tokens + n > kTokens) continue;
        paged_part.push_back(&in_paged[i]);
        dense_part.push_back(&in_dense[i]);
        n_new.push_back(n);
      }
      if (n_new.empty()) continue;
      auto got = drive_paged.Step(paged_part, n_new);
      auto expected = drive_dense.Step(dense_part, n_new);
      ASSERT_TRUE(drive_paged.status.ok()) << drive_paged.status.message();
      for (uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
        ASSERT_LT(LargestDifference(got[layer], expected[layer]), tolerance)
            << "step " << step << " layer " << layer;
      }
    }
    for (const DrivenSequence& sequence : in_paged) {
      EXPECT_EQ(paged.Stats(sequence.id).n_tokens, sequence.n_tokens);
      EXPECT_EQ(paged.ResidentPositions(sequence.id, 1, 1).size(),
                sequence.n_tokens);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PagedAttentionTest,
                         testing::Values(std::tuple(64, 1), std::tuple(64, 3),
                                         std::tuple(64, 8), std::tuple(80, 4),
                                         std::tuple(96, 2), std::tuple(128, 3),
                                         std::tuple(128, 7),
                                         std::tuple(256, 2)));

TEST(PagedAttentionRunsTest, LongLaneIsMergedFromManyRuns) {
  const KvShape shape{
      .n_layers = 1, .n_kv_heads = 1, .group = 3, .head_dim = 64};
  PagedKvCache paged(shape, Threads(3));
  DenseKvCache dense(shape);
  CacheDriver drive_paged(paged, 3);
  CacheDriver drive_dense(dense, 1);
  DrivenSequence a = drive_paged.Add(FullOptions(1800, KvTypeName::kF16), 5);
  DrivenSequence b = drive_dense.Add({}, 5);
  drive_paged.query_scale = 4;  // runs whose maxima differ
  drive_dense.query_scale = 4;
  drive_paged.Prefill(a, 1790, 512);
  drive_dense.Prefill(b, 1790, 512);
  for (int i = 0; i < 10; ++i) {
    EXPECT_LT(LargestDifference(drive_paged.Step(a, 1).back(),
                                drive_dense.Step(b, 1).back()),
              4 * kF16Tolerance);
  }
}

// Collects every sample by (layer, KV head, query).
class Samples final : public AttentionObserver {
 public:
  void OnAttention(const AttentionSample& sample) override {
    std::lock_guard<std::mutex> lock(mu_);
    auto [it, is_new] = samples.try_emplace(
        std::make_tuple(sample.layer, sample.kv_head, sample.query_pos));
    EXPECT_TRUE(is_new);
    it->second.assign(sample.mass_max, sample.mass_max + sample.n_slots);
    it->second.insert(it->second.end(), sample.mass_mean,
                      sample.mass_mean + sample.n_slots);
  }
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<float>>
      samples;

 private:
  std::mutex mu_;
};

// Without their offset, keys with means of 30 would have steps of 0.24: outputs
// would be 0.07 off.
TEST(PagedAttentionInt8Test, LargeMeansOfKeysCostNoPrecision) {
  constexpr KvShape kShape{
      .n_layers = 1, .n_kv_heads = 2, .group = 2, .head_dim = 64};
  PagedKvCache paged(kShape, Threads(1));
  DenseKvCache dense(kShape);
  CacheDriver drive_paged(paged, 1);
  CacheDriver drive_dense(dense, 1);
  drive_paged.key_mean = drive_dense.key_mean = 30;
  DrivenSequence in_paged =
      drive_paged.Add(FullOptions(1300, KvTypeName::kInt8), 3);
  DrivenSequence in_dense = drive_dense.Add({}, 3);
  for (uint32_t n_new : {300, 200, 700, 1, 1, 1}) {
    const auto got = drive_paged.Step(in_paged, n_new);
    const auto expected = drive_dense.Step(in_dense, n_new);
    EXPECT_LT(LargestDifference(got[0], expected[0]), kInt8Tolerance) << n_new;
  }
}

TEST(PagedAttentionObserverTest, SeesTheMassesOfTheDenseCache) {
  const KvShape shape{
      .n_layers = 2, .n_kv_heads = 2, .group = 3, .head_dim = 64};
  PagedKvCache paged(shape, Threads(2));
  DenseKvCache dense(shape);
  CacheDriver drive_paged(paged, 2);
  CacheDriver drive_dense(dense, 1);
  Samples got;
  Samples expected;
  paged.SetObserver(&got);
  dense.SetObserver(&expected);
  DrivenSequence a = drive_paged.Add(FullOptions(700, KvTypeName::kF16), 9);
  DrivenSequence b = drive_dense.Add({}, 9);
  drive_paged.query_scale = 3;
  drive_dense.query_scale = 3;
  for (uint32_t n : {200u, 1u, 77u, 1u, 300u, 5u, 1u, 1u}) {
    drive_paged.Step(a, n);
    drive_dense.Step(b, n);
  }
  ASSERT_EQ(got.samples.size(), expected.samples.size());
  for (const auto& [key, masses] : expected.samples) {
    ASSERT_TRUE(got.samples.contains(key));
    ASSERT_LT(LargestDifference(got.samples[key], masses), 5e-3);
  }
}

TEST(PagedAttentionObserverTest, WhoWatchesAllSeesEveryQueryOfAPrompt) {
  class Counter final : public AttentionObserver {
   public:
    explicit Counter(bool all) : all_(all) {}
    void OnAttention(const AttentionSample& sample) override {
      if (sample.layer == 1 && sample.kv_head == 2) ++n_seen;
    }
    bool WatchesAll() const override { return all_; }
    uint32_t n_seen = 0;

   private:
    const bool all_;
  };
  const KvShape shape{
      .n_layers = 2, .n_kv_heads = 3, .group = 2, .head_dim = 64};
  for (const bool all : {false, true}) {
    PagedKvCache cache(shape, Threads(2));
    CacheDriver drive(cache, 2);
    Counter counter(all);
    cache.SetObserver(&counter);
    DrivenSequence sequence = drive.Add(FullOptions(200, KvTypeName::kF16), 3);
    drive.Step(sequence, 200);
    EXPECT_EQ(counter.n_seen, all ? 200u : 32u + 168 / 8);
  }
}

TEST(PagedAttentionThreadsTest, NumberOfThreadsChangesNoBit) {
  const KvShape shape{
      .n_layers = 2, .n_kv_heads = 3, .group = 3, .head_dim = 64};
  std::vector<std::vector<float>> expected;
  for (uint32_t n_threads : {1, 2, 3, 4}) {
    PagedKvCache cache(shape, Threads(n_threads));
    CacheDriver drive(cache, n_threads);
    DrivenSequence a = drive.Add(FullOptions(1500, KvTypeName::kF16), 1);
    DrivenSequence b = drive.Add(FullOptions(1500, KvTypeName::kF16), 2);
    std::vector<std::vector<float>> outputs;
    outputs.push_back(drive.Prefill(a, 1203, 256));
    outputs.push_back(drive.Prefill(b, 517, 256));
    for (int i = 0; i < 8; ++i) {
      DrivenSequence* both[] = {&a, &b};
      const uint32_t n_new[] = {1, 1};
      outputs.push_back(drive.Step(both, n_new).back());
    }
    if (expected.empty()) expected = outputs;
    EXPECT_TRUE(outputs == expected) << n_threads;
  }
}

}  // namespace
}  // namespace lkv
