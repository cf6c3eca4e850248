// Which pages stay, against naive models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/observed_queries.h"
#include "cache/paged_kv_cache.h"
#include "cache/sequence_pages.h"
#include "cache/testing_eviction.h"
#include "testing/cache_driver.h"

namespace lkv {
namespace {

std::vector<uint32_t> FirstPositions(const PagedKvCache& cache, SequenceId id,
                                     uint32_t lane) {
  std::vector<uint32_t> pages;
  for (uint32_t pos : PositionsOf(cache, id, lane)) {
    if (pos % kPageTokens == 0) pages.push_back(pos);
  }
  return pages;
}

// H2O in the plainest way: per lane a sum for every resident page.
class NaiveH2o final : public AttentionObserver {
 public:
  explicit NaiveH2o(uint32_t pages_per_lane)
      : cap_pages_(pages_per_lane), lanes_(kShape.n_lanes()) {}

  void OnAttention(const AttentionSample& sample) override {
    auto& lane = lanes_[kShape.LaneOf(sample.layer, sample.kv_head)];
    const double weight =
        sample.query_pos - (lane.last_pos < 0 ? -1.0 : lane.last_pos);
    lane.last_pos = sample.query_pos;
    uint32_t slot = 0;
    for (auto& [first_pos, sum] : lane.sums) {
      for (uint32_t i = 0; i < kPageTokens && slot < sample.n_slots; ++i) {
        sum += weight * sample.mass_max[slot++];
      }
    }
    EXPECT_EQ(slot, sample.n_slots);
  }

  // Before a step of n_new tokens: room for its pages.
  void BeginStep(uint32_t n_tokens, uint32_t n_new) {
    const uint32_t to_open = PagesOf(n_tokens + n_new) - PagesOf(n_tokens);
    for (Lane& lane : lanes_) {
      for (uint32_t first_pos : lane.planned) lane.sums.erase(first_pos);
      lane.planned.clear();
      Leave(lane, n_tokens, cap_pages_ - to_open, /*at_once=*/true);
      for (uint32_t i = 0; i < to_open; ++i) {
        lane.sums[PagesOf(n_tokens) * kPageTokens + i * kPageTokens] = 0;
      }
    }
  }
  // After a step: lanes in turn plan to have one page to spare.
  void EndStep(uint32_t n_tokens, uint32_t n_new) {
    for (uint32_t i = 0; i < lanes_.size(); ++i) {
      if (n_new == 1 && n_tokens % kPageTokens != i % kPageTokens) continue;
      Leave(lanes_[i], n_tokens, cap_pages_ - 1, /*at_once=*/false);
    }
  }
  std::vector<uint32_t> Pages(uint32_t lane) const {
    std::vector<uint32_t> pages;
    for (const auto& [first_pos, sum] : lanes_[lane].sums) {
      pages.push_back(first_pos);
    }
    return pages;
  }

 private:
  struct Lane {
    std::map<uint32_t, double> sums;  // by first position
    std::set<uint32_t> planned;
    double last_pos = -1;
  };

  void Leave(Lane& lane, uint32_t n_tokens, uint32_t keep, bool at_once) {
    while (lane.sums.size() - lane.planned.size() > keep) {
      auto lowest = lane.sums.end();
      for (auto it = lane.sums.begin(); it != lane.sums.end(); ++it) {
        const bool is_protected =
            it->first < 4 || it->first + kPageTokens + 32 > n_tokens;
        if (is_protected || lane.planned.contains(it->first)) continue;
        if (lowest == lane.sums.end() || it->second < lowest->second) {
          lowest = it;
        }
      }
      ASSERT_NE(lowest, lane.sums.end());
      lane.planned.insert(lowest->first);
    }
    if (!at_once) return;
    for (uint32_t first_pos : lane.planned) lane.sums.erase(first_pos);
    lane.planned.clear();
  }

  const uint32_t cap_pages_;
  std::vector<Lane> lanes_;
};

TEST(PagedEvictionTest, KeepsTheSamePagesAsANaiveH2o) {
  constexpr uint32_t kPages = 14;
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  drive.query_scale = 4;
  DrivenSequence sequence =
      drive.Add(WithPagesPerLane(Evicting(PolicyName::kH2o, 0), kPages), 3);
  NaiveH2o naive(kPages);
  cache.SetObserver(&naive);
  while (sequence.n_tokens < 700) {
    uint32_t n_new = 1;
    if (sequence.n_tokens < 600) {
      n_new = std::min(cache.ChunkTokens(sequence.id, 512),
                       600 - sequence.n_tokens);
    }
    naive.BeginStep(sequence.n_tokens, n_new);
    ASSERT_FALSE(drive.Step(sequence, n_new).empty());
    for (uint32_t lane = 0; lane < kShape.n_lanes(); ++lane) {
      ASSERT_EQ(FirstPositions(cache, sequence.id, lane), naive.Pages(lane))
          << "at " << sequence.n_tokens << " lane " << lane;
    }
    naive.EndStep(sequence.n_tokens, n_new);
  }
  EXPECT_GT(cache.Stats(sequence.id).evicted_tokens, 400u);
}

TEST(PagedEvictionTest, StreamingKeepsSinksAndTheNewest) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence sequence =
      drive.Add(WithPagesPerLane(Evicting(PolicyName::kStreaming, 0), 12), 3);
  drive.Prefill(sequence, 500, 512);
  for (int i = 0; i < 100; ++i) {
    drive.Step(sequence, 1);
    for (uint32_t lane = 0; lane < kShape.n_lanes(); ++lane) {
      std::vector<uint32_t> pages = FirstPositions(cache, sequence.id, lane);
      ASSERT_GE(pages.size(), 11u);
      ASSERT_EQ(pages[0], 0u);
      for (size_t p = 1; p < pages.size(); ++p) {
        ASSERT_EQ(pages[p],
                  (sequence.n_tokens - 1) / kPageTokens * kPageTokens -
                      kPageTokens * (pages.size() - 1 - p));
      }
    }
  }
}

// Attention of one query head over the given positions, from the driver's rows.
std::vector<double> AttendOnly(const std::vector<uint32_t>& positions,
                               const DrivenSequence& sequence, uint32_t layer,
                               uint32_t head, uint32_t query_pos,
                               float query_scale) {
  const uint32_t d = kShape.head_dim;
  const uint32_t kv_head = head / kShape.group;
  using Row = CacheDriver::Row;
  std::vector<float> q;
  CacheDriver::Draw(Row::kQuery, sequence, layer, query_pos,
                    kShape.n_heads() * d, query_scale, &q);
  double total = 0;
  std::vector<double> out(d);
  for (uint32_t pos : positions) {
    std::vector<float> k;
    std::vector<float> v;
    CacheDriver::Draw(Row::kKey, sequence, layer, pos, kShape.n_kv_heads * d, 1,
                      &k);
    CacheDriver::Draw(Row::kValue, sequence, layer, pos, kShape.n_kv_heads * d,
                      1, &v);
    double logit = 0;
    for (uint32_t c = 0; c < d; ++c) {
      logit += double{q[head * d + c]} * k[kv_head * d + c];
    }
    const double weight = std::exp(logit / std::sqrt(double{d}));
    total += weight;
    for (uint32_t c = 0; c < d; ++c) out[c] += weight * v[kv_head * d + c];
  }
  for (double& x : out) x /= total;
  return out;
}

TEST(PagedEvictionTest, AttendsToExactlyTheResidentPositions) {
  using enum PolicyName;
  using enum EvictionUnit;
  for (const auto& [policy, type, unit] :
       {std::tuple{kLookahead, KvTypeName::kF16, kPage},
        {kRandom, KvTypeName::kF16, kPage},
        {kLookahead, KvTypeName::kInt8, kPage},
        {kLookahead, KvTypeName::kF16, kRepack},
        {kRandom, KvTypeName::kBF16, kRepack},
        {kRandom, KvTypeName::kInt8, kRepack}}) {
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    drive.query_scale = 2;
    SequenceOptions options = Evicting(policy, 224);
    options.cache.kv_type = type;
    options.cache.unit = unit;
    DrivenSequence sequence = drive.Add(options, 8);
    drive.Prefill(sequence, 430, 512);
    for (int i = 0; i < 40; ++i) {
      const uint32_t pos = sequence.n_tokens;
      auto out = drive.Step(sequence, 1);
      ASSERT_FALSE(out.empty());
      for (uint32_t layer = 0; layer < kShape.n_layers; ++layer) {
        for (uint32_t head = 0; head < kShape.n_heads(); ++head) {
          const std::vector<uint32_t> resident =
              cache.ResidentPositions(sequence.id, layer, head / kShape.group);
          ASSERT_LT(resident.size(), 300u);
          const std::vector<double> expected =
              AttendOnly(resident, sequence, layer, head, pos, 2);
          for (uint32_t c = 0; c < kShape.head_dim; ++c) {
            ASSERT_NEAR(out[layer][head * kShape.head_dim + c], expected[c],
                        type == KvTypeName::kF16    ? 4e-3
                        : type == KvTypeName::kBF16 ? 2e-2
                                                    : 3e-2);
          }
        }
      }
    }
  }
}

TEST(PagedEvictionTest, SinksRecentAndPinnedTokensNeverLeave) {
  for (PolicyName policy :
       {PolicyName::kLookahead, PolicyName::kLru, PolicyName::kLfu,
        PolicyName::kFifo, PolicyName::kStreaming, PolicyName::kH2o,
        PolicyName::kObserved, PolicyName::kTova, PolicyName::kSnapKv,
        PolicyName::kExpectedAttention, PolicyName::kRandom}) {
    for (EvictionUnit unit : {EvictionUnit::kPage, EvictionUnit::kRepack}) {
      PagedKvCache cache(kShape, Threads(1));
      CacheDriver drive(cache, 1);
      SequenceOptions options = Evicting(policy, 256);
      options.cache.unit = unit;
      options.pinned = {{100, 117}, {40, 41}};
      DrivenSequence sequence = drive.Add(options, 1);
      while (sequence.n_tokens < 560) {
        const uint32_t n_new =
            sequence.n_tokens < 480 ? cache.ChunkTokens(sequence.id, 512) : 1;
        ASSERT_FALSE(drive.Step(sequence, n_new).empty());
        for (uint32_t lane = 0; lane < kShape.n_lanes(); ++lane) {
          const std::vector<uint32_t> list =
              PositionsOf(cache, sequence.id, lane);
          const std::set<uint32_t> resident(list.begin(), list.end());
          for (uint32_t pos = 0; pos < sequence.n_tokens; ++pos) {
            const bool keep = pos < 4 || pos + 32 >= sequence.n_tokens ||
                              (pos >= 100 && pos < 117) || pos == 40;
            ASSERT_TRUE(!keep || resident.contains(pos)) << pos;
          }
        }
      }
      EXPECT_GT(cache.Stats(sequence.id).evicted_tokens, 200u);
    }
  }
}

TEST(PagedEvictionTest, DenseLayersKeepEverythingInsideTheCap) {
  // One of six layers is dense: 600 of 3,600 lane-tokens, 28 % of the budget.
  const KvShape shape{
      .n_layers = 6, .n_kv_heads = 2, .group = 2, .head_dim = 64};
  PagedKvCache cache(shape, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Evicting(PolicyName::kLookahead, 360);
  options.prompt_tokens = 500;
  options.max_new_tokens = 100;
  options.cache.dense_layers = 1;
  DrivenSequence sequence = drive.Add(options, 1);
  drive.Prefill(sequence, 500, 512);
  for (int i = 0; i < 100; ++i) {
    ASSERT_FALSE(drive.Step(sequence, 1).empty()) << drive.status.message();
    for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      ASSERT_EQ(cache.ResidentPositions(sequence.id, 0, head).size(),
                sequence.n_tokens);
    }
  }
  for (uint32_t layer = 1; layer < shape.n_layers; ++layer) {
    EXPECT_LT(cache.ResidentPositions(sequence.id, layer, 0).size(), 500u);
  }
  EXPECT_LE(cache.Stats(sequence.id).resident_bytes_max,
            cache.Stats(sequence.id).budget_bytes);
}

// Pages of all lanes.
uint32_t CountPages(const PagedKvCache& cache, SequenceId id) {
  uint32_t n_pages = 0;
  for (uint32_t layer = 0; layer < kShape.n_layers; ++layer) {
    for (uint32_t head = 0; head < kShape.n_kv_heads; ++head) {
      n_pages += static_cast<uint32_t>(
          PagesOf(cache.ResidentPositions(id, layer, head).size()));
    }
  }
  return n_pages;
}

// What makes a step late: reading more, or evicting more, than the others do.
TEST(PagedEvictionTest, TwoThousandStepsAtAFullBudgetReadAndEvictTheSame) {
  SequenceOptions options = Evicting(PolicyName::kLookahead, 256);
  options.prompt_tokens = 300;
  options.max_new_tokens = 2100;
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence sequence = drive.Add(options, 7);
  drive.Prefill(sequence, 304, 64);
  for (uint32_t i = 0; i < 2 * kPageTokens; ++i) drive.Step(sequence, 1);

  constexpr uint32_t kLanes = kShape.n_lanes();
  const uint64_t page_bytes = kShape.page_bytes(KvType::kF16);
  const uint64_t read_before = cache.Stats(sequence.id).read_bytes_last_step;
  uint32_t n_pages = CountPages(cache, sequence.id);
  uint32_t evicted_in_turn = 0;
  for (uint32_t step = 0; step < 2000; ++step) {
    const uint32_t n_opened =
        SequencePages::PagesToOpen(sequence.n_tokens, 1) * kLanes;
    ASSERT_FALSE(drive.Step(sequence, 1).empty());
    const uint64_t read = cache.Stats(sequence.id).read_bytes_last_step;
    // One page in each lane is being filled while another is on its way out.
    ASSERT_LE(std::max(read, read_before) - std::min(read, read_before),
              kLanes * page_bytes)
        << step;
    const uint32_t n_left = n_pages + n_opened - CountPages(cache, sequence.id);
    n_pages = CountPages(cache, sequence.id);
    // Lanes take turns, sixteen steps long.
    ASSERT_LE(n_left, CeilDiv(kLanes, kPageTokens) + 1) << step;
    evicted_in_turn += n_left;
    if (step % kPageTokens != kPageTokens - 1) continue;
    ASSERT_EQ(evicted_in_turn, kLanes) << step;
    evicted_in_turn = 0;
  }
}

TEST(PagedEvictionTest, NumberOfThreadsChangesNeitherTextNorEvictions) {
  std::vector<std::vector<float>> expected_outputs;
  std::vector<std::vector<uint32_t>> expected_pages;
  for (uint32_t n_threads : {1, 2, 3, 4}) {
    PagedKvCache cache(kShape, Threads(n_threads));
    CacheDriver drive(cache, n_threads);
    drive.query_scale = 3;
    SequenceOptions options = Evicting(PolicyName::kLookahead, 256);
    DrivenSequence a = drive.Add(options, 1);
    options.cache.base_window_tokens = 128;
    options.cache.max_window_tokens = 192;
    options.cache.min_window_tokens = 96;
    options.cache.kv_type = KvTypeName::kInt8;
    options.cache.unit = EvictionUnit::kRepack;
    DrivenSequence b = drive.Add(options, 2);
    std::vector<std::vector<float>> outputs;
    outputs.push_back(drive.Prefill(a, 400, 512));
    outputs.push_back(drive.Prefill(b, 300, 512));
    for (int i = 0; i < 80; ++i) {
      DrivenSequence* both[] = {&a, &b};
      const uint32_t n_new[] = {1, 1};
      outputs.push_back(drive.Step(both, n_new).back());
    }
    std::vector<std::vector<uint32_t>> pages;
    for (uint32_t lane = 0; lane < kShape.n_lanes(); ++lane) {
      pages.push_back(FirstPositions(cache, a.id, lane));
      pages.push_back(PositionsOf(cache, b.id, lane));
    }
    if (expected_outputs.empty()) {
      expected_outputs = outputs;
      expected_pages = pages;
    }
    EXPECT_TRUE(outputs == expected_outputs) << n_threads;
    EXPECT_EQ(pages, expected_pages) << n_threads;
  }
}

TEST(PagedEvictionTest, BudgetAboveTheLengthIsTheFullCacheBitForBit) {
  std::map<KvTypeName, std::vector<std::vector<float>>> expected;
  for (const auto& [policy, type] :
       {std::pair{PolicyName::kFull, KvTypeName::kF16},
        {PolicyName::kLookahead, KvTypeName::kF16},
        {PolicyName::kFull, KvTypeName::kInt8},
        {PolicyName::kLookahead, KvTypeName::kInt8}}) {
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    SequenceOptions options = Evicting(policy, 2000);
    options.cache.kv_type = type;
    if (policy != PolicyName::kFull) {
      // A window that would shrink, a threshold that would evict.
      options.cache.base_window_tokens = 96;
      options.cache.eviction_rule = EvictionRule::kScoreThreshold;
    }
    DrivenSequence sequence = drive.Add(options, 1);
    std::vector<std::vector<float>> outputs;
    outputs.push_back(drive.Prefill(sequence, 600, 256));
    for (int i = 0; i < 50; ++i) {
      outputs.push_back(drive.Step(sequence, 1).back());
    }
    EXPECT_EQ(cache.Stats(sequence.id).evicted_tokens, 0u);
    if (policy == PolicyName::kFull) expected[type] = outputs;
    EXPECT_TRUE(outputs == expected[type]);
  }
}

TEST(PagedEvictionTest, Int8HoldsNearlyTwiceTheTokensOfF16) {
  const auto resident_tokens = [](KvTypeName type) {
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    SequenceOptions options = Evicting(PolicyName::kLru, 0);
    options.cache.budget = {.kind = Budget::Kind::kBytes, .amount = 1 << 20};
    options.cache.kv_type = type;
    options.prompt_tokens = 4000;
    DrivenSequence sequence = drive.Add(options, 1);
    drive.Prefill(sequence, 4000, 512);
    return cache.ResidentPositions(sequence.id, 0, 0).size();
  };
  const double ratio = static_cast<double>(resident_tokens(KvTypeName::kInt8)) /
                       resident_tokens(KvTypeName::kF16);
  EXPECT_GT(ratio, 1.75);
  EXPECT_LT(ratio, 256.0 / 132);
}

}  // namespace
}  // namespace lkv
