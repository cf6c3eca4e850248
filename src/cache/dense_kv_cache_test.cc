#include "cache/dense_kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>
#include <vector>

#include "testing/cache_driver.h"

namespace lkv {
namespace {

constexpr KvShape kShape{
    .n_layers = 2, .n_kv_heads = 2, .group = 2, .head_dim = 16};
constexpr size_t kKvRow = 2 * 16;
constexpr size_t kQRow = 4 * 16;

std::vector<float> Random(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& value : x) value = normal(rng);
  return x;
}

// Feeds `n_tokens` random rows in steps of `chunk` and returns the outputs of
// layer 1.
std::vector<float> Feed(DenseKvCache& cache, SequenceId id, uint32_t n_tokens,
                        uint32_t chunk, uint32_t n_threads) {
  ThreadTeam team(n_threads);
  std::vector<float> q = Random(n_tokens * kQRow, 1);
  std::vector<float> k = Random(n_tokens * kKvRow, 2);
  std::vector<float> v = Random(n_tokens * kKvRow, 3);
  std::vector<float> out(n_tokens * kQRow);
  for (uint32_t t = 0; t < n_tokens; t += chunk) {
    const StepEntry entry{id, std::min(chunk, n_tokens - t)};
    EXPECT_TRUE(cache.BeginStep({&entry, 1}).ok());
    team.Run([&](TeamMember& me) {
      for (uint32_t layer = 0; layer < kShape.n_layers; ++layer) {
        AppendHeads(me, cache, layer, {&k[t * kKvRow], kKvRow},
                    {&v[t * kKvRow], kKvRow});
        cache.Attend(me, layer, {&q[t * kQRow], kQRow}, &out[t * kQRow], kQRow);
      }
      cache.EndStep(me);
    });
  }
  return out;
}

TEST(DenseKvCacheTest, FirstTokenAttendsOnlyToItself) {
  DenseKvCache cache(kShape);
  SequenceId id = cache.AddSequence({}).value();
  std::vector<float> out = Feed(cache, id, 1, 1, 1);
  std::vector<float> v = Random(kKvRow, 3);
  for (uint32_t head = 0; head < 4; ++head) {
    for (uint32_t c = 0; c < 16; ++c) {
      EXPECT_FLOAT_EQ(out[head * 16 + c], v[head / 2 * 16 + c]);
    }
  }
}

TEST(DenseKvCacheTest, TwoTokensWeighBySoftmaxOfScaledDotProduct) {
  DenseKvCache cache(kShape);
  SequenceId id = cache.AddSequence({}).value();
  std::vector<float> out = Feed(cache, id, 2, 2, 1);
  std::vector<float> q = Random(2 * kQRow, 1);
  std::vector<float> k = Random(2 * kKvRow, 2);
  std::vector<float> v = Random(2 * kKvRow, 3);
  double logit[2] = {0, 0};
  for (uint32_t i = 0; i < 2; ++i) {
    for (uint32_t c = 0; c < 16; ++c) {
      logit[i] += 0.25 * q[kQRow + 3 * 16 + c] * k[i * kKvRow + 16 + c];
    }
  }
  const double w = 1 / (1 + std::exp(logit[1] - logit[0]));
  for (uint32_t c = 0; c < 16; ++c) {
    EXPECT_NEAR(out[kQRow + 3 * 16 + c],
                w * v[16 + c] + (1 - w) * v[kKvRow + 16 + c], 1e-6);
  }
}

TEST(DenseKvCacheTest, NeitherChunksNorThreadsChangeTheOutput) {
  std::vector<float> expected;
  for (uint32_t n_threads : {1, 2, 3, 4}) {
    for (uint32_t chunk : {1, 7, 40}) {
      DenseKvCache cache(kShape);
      SequenceId id = cache.AddSequence({}).value();
      std::vector<float> out = Feed(cache, id, 40, chunk, n_threads);
      if (expected.empty()) expected = out;
      EXPECT_EQ(out, expected) << n_threads << " threads, chunk " << chunk;
    }
  }
}

TEST(DenseKvCacheTest, SequencesDoNotSeeEachOther) {
  DenseKvCache alone(kShape);
  SequenceId only = alone.AddSequence({}).value();
  std::vector<float> expected = Feed(alone, only, 20, 5, 2);
  DenseKvCache cache(kShape);
  SequenceId a = cache.AddSequence({}).value();
  SequenceId b = cache.AddSequence({}).value();
  Feed(cache, a, 9, 3, 2);
  EXPECT_EQ(Feed(cache, b, 20, 5, 2), expected);
  EXPECT_EQ(cache.Stats(a).n_tokens, 9u);
  cache.RemoveSequence(a);
  EXPECT_EQ(cache.ResidentPositions(b, 0, 0).size(), 20u);
}

class Recorder final : public AttentionObserver {
 public:
  void OnAttention(const AttentionSample& sample) override {
    double mean = 0;
    for (uint32_t i = 0; i < sample.n_slots; ++i) {
      EXPECT_LE(sample.mass_mean[i], sample.mass_max[i]);
      mean += sample.mass_mean[i];
    }
    EXPECT_NEAR(mean, 1.0, 1e-5);
    EXPECT_EQ(sample.n_slots, sample.query_pos + 1);
    std::lock_guard<std::mutex> lock(mu_);
    if (sample.layer == 1 && sample.kv_head == 1) {
      positions.push_back(sample.query_pos);
    }
  }
  std::vector<uint32_t> positions;

 private:
  std::mutex mu_;
};

TEST(DenseKvCacheTest, ObserverSeesEveryEighthAndTheLast32OfAChunk) {
  DenseKvCache cache(kShape);
  SequenceId id = cache.AddSequence({}).value();
  Recorder recorder;
  cache.SetObserver(&recorder);
  Feed(cache, id, 50, 50, 2);
  std::vector<uint32_t> expected = {7, 15};
  for (uint32_t pos = 18; pos < 50; ++pos) expected.push_back(pos);
  EXPECT_EQ(recorder.positions, expected);
}

TEST(DenseKvCacheTest, ChunksEndAtAbsoluteMultiples) {
  DenseKvCache cache(kShape);
  SequenceId id = cache.AddSequence({}).value();
  EXPECT_EQ(cache.ChunkTokens(id, 32), 32u);
  Feed(cache, id, 40, 40, 1);
  EXPECT_EQ(cache.ChunkTokens(id, 32), 24u);
}

}  // namespace
}  // namespace lkv
