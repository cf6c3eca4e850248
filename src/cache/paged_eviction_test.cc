// Which pages stay, against naive models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/observed_queries.h"
#include "cache/paged_kv_cache.h"
#include "cache/sequence_pages.h"
#include "cache/testing_options.h"
#include "testing/cache_driver.h"

namespace lkv {
namespace {

constexpr KvShape kShape{
    .n_layers = 2, .n_kv_heads = 3, .group = 2, .head_dim = 64};

// Small protection, so that small caches have something to choose from.
SequenceOptions Evicting(PolicyName policy, uint32_t budget_tokens) {
  SequenceOptions options;
  options.cache.policy = policy;
  options.cache.budget = {.kind = Budget::Kind::kTokens,
                          .amount = budget_tokens};
  options.cache.sink_tokens = 4;
  options.cache.recent_tokens = 32;
  options.prompt_tokens = 600;
  options.max_new_tokens = 400;
  return options;
}

// The smallest budget that pays for `pages` pages in every lane, and not one
// more in any.
SequenceOptions WithPagesPerLane(SequenceOptions options, uint32_t pages) {
  uint64_t too_low = 0;
  uint64_t enough =
      pages * kPageTokens * kShape.bytes_per_token(KvType::kF16) * 2;
  options.cache.budget.kind = Budget::Kind::kBytes;
  while (enough - too_low > 1) {
    const uint64_t middle = (too_low + enough) / 2;
    options.cache.budget.amount = middle;
    PagedKvCache cache(kShape, Threads(1));
    Result<SequenceId> id = cache.AddSequence(options);
    const bool fits =
        id.ok() && cache.Stats(id.value()).window_tokens >= pages * kPageTokens;
    (fits ? enough : too_low) = middle;
  }
  options.cache.budget.amount = enough;
  return options;
}

std::vector<uint32_t> FirstPositions(const PagedKvCache& cache, SequenceId id,
                                     uint32_t lane) {
  std::vector<uint32_t> pages;
  for (uint32_t pos : cache.ResidentPositions(id, lane / kShape.n_kv_heads,
                                              lane % kShape.n_kv_heads)) {
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
        PolicyName::kRandom}) {
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
          const std::vector<uint32_t> list = cache.ResidentPositions(
              sequence.id, lane / kShape.n_kv_heads, lane % kShape.n_kv_heads);
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

// Repacking in the plainest way, by the attention of the last query (TOVA): per
// lane a list of pages, each a list of tokens.
class NaiveRepack final : public AttentionObserver {
 public:
  struct Token {
    uint32_t pos;
    float mass;
  };
  using Page = std::vector<Token>;

  explicit NaiveRepack(uint32_t pages_per_lane)
      : cap_pages_(pages_per_lane), lanes_(kShape.n_lanes()) {}

  void OnAttention(const AttentionSample& sample) override {
    uint32_t slot = 0;
    for (Page& page : lanes_[kShape.LaneOf(sample.layer, sample.kv_head)]) {
      for (Token& token : page) {
        if (slot < sample.n_slots) token.mass = sample.mass_max[slot++];
      }
    }
    EXPECT_EQ(slot, sample.n_slots);
  }
  // Before a chunk of n_new tokens.
  void BeginChunk(uint32_t n_tokens, uint32_t n_new) {
    const uint32_t to_open = PagesOf(n_tokens + n_new) - PagesOf(n_tokens);
    for (std::vector<Page>& lane : lanes_) {
      const size_t keep = cap_pages_ - to_open;
      if (lane.size() > keep) Repack(lane, n_tokens, lane.size() - keep);
      for (uint32_t pos = n_tokens; pos < n_tokens + n_new; ++pos) {
        if (pos % kPageTokens == 0) lane.emplace_back();
        lane.back().push_back({pos, 0});
      }
    }
  }
  // After it, plans are made to have one page to spare.
  void EndChunk(uint32_t n_tokens) {
    for (std::vector<Page>& lane : lanes_) {
      if (lane.size() == cap_pages_) Repack(lane, n_tokens, 1);
    }
  }
  std::vector<uint32_t> Positions(uint32_t lane) const {
    std::vector<uint32_t> positions;
    for (const Page& page : lanes_[lane]) {
      for (const Token& token : page) positions.push_back(token.pos);
    }
    std::sort(positions.begin(), positions.end());
    return positions;
  }

 private:
  // Frees n pages: the 2 n pages of the least mass keep their best tokens.
  static void Repack(std::vector<Page>& lane, uint32_t n_tokens, size_t n) {
    std::vector<std::pair<float, size_t>> worth;  // mass, index
    uint32_t first_slot = 0;
    for (size_t i = 0; i < lane.size(); first_slot += kPageTokens, ++i) {
      if (i == 0 || lane[i].back().pos + 32 >= n_tokens) continue;
      float sums[4] = {};  // in the order that the cache adds up
      for (uint32_t s = 0; s < kPageTokens; ++s) sums[s % 4] += lane[i][s].mass;
      worth.push_back({(sums[0] + sums[2]) + (sums[1] + sums[3]), i});
    }
    std::sort(worth.begin(), worth.end());
    ASSERT_GT(worth.size(), n);
    worth.resize(std::min(worth.size(), 2 * n));
    std::vector<size_t> pages;
    for (const auto& [mass, i] : worth) pages.push_back(i);
    std::sort(pages.begin(), pages.end());
    Page all;
    for (size_t i : pages) {
      all.insert(all.end(), lane[i].begin(), lane[i].end());
    }
    std::vector<size_t> order(all.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return all[a].mass != all[b].mass ? all[a].mass < all[b].mass : a < b;
    });
    order.erase(order.begin(), order.begin() + static_cast<long>(n * 16));
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i) {
      lane[pages[i / 16]][i % 16] = all[order[i]];
    }
    for (size_t i = pages.size(); i > order.size() / 16; --i) {
      lane.erase(lane.begin() + static_cast<long>(pages[i - 1]));
    }
  }

  const uint32_t cap_pages_;
  std::vector<std::vector<Page>> lanes_;
};

TEST(PagedEvictionTest, RepackKeepsTheTokensOfANaiveModel) {
  constexpr uint32_t kPages = 18;
  SequenceOptions options = Evicting(PolicyName::kTova, 0);
  options.cache.unit = EvictionUnit::kRepack;
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  drive.query_scale = 4;
  DrivenSequence sequence = drive.Add(WithPagesPerLane(options, kPages), 3);
  NaiveRepack naive(kPages);
  cache.SetObserver(&naive);
  while (sequence.n_tokens < 900) {
    const uint32_t n_new = 48;
    naive.BeginChunk(sequence.n_tokens, n_new);
    ASSERT_FALSE(drive.Step(sequence, n_new).empty());
    for (uint32_t lane = 0; lane < kShape.n_lanes(); ++lane) {
      ASSERT_EQ(cache.ResidentPositions(sequence.id, lane / kShape.n_kv_heads,
                                        lane % kShape.n_kv_heads),
                naive.Positions(lane))
          << "at " << sequence.n_tokens << " lane " << lane;
    }
    naive.EndChunk(sequence.n_tokens);
  }
  EXPECT_GT(cache.Stats(sequence.id).evicted_tokens, 500u);
}

// Of a text that was read whole the best tokens stay: exactly those that rank
// highest, when tokens leave one by one.
TEST(PagedEvictionTest, AShrunkBudgetKeepsTheTokensWithTheMostAttention) {
  class LastMasses final : public AttentionObserver {
   public:
    void OnAttention(const AttentionSample& sample) override {
      masses[kShape.LaneOf(sample.layer, sample.kv_head)].assign(
          sample.mass_max, sample.mass_max + sample.n_slots);
    }
    std::map<uint32_t, std::vector<float>> masses;
  };
  SequenceOptions options = Evicting(PolicyName::kTova, 0);
  options.cache.budget = {};
  options.cache.unit = EvictionUnit::kRepack;
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  drive.query_scale = 4;
  DrivenSequence sequence = drive.Add(options, 3);
  LastMasses last;
  cache.SetObserver(&last);
  drive.Prefill(sequence, 600, 512);
  EXPECT_EQ(cache.Stats(sequence.id).evicted_tokens, 0u);

  const Status shrunk = cache.ShrinkBudget(
      sequence.id, {.kind = Budget::Kind::kShare, .share = 0.25});
  ASSERT_TRUE(shrunk.ok()) << shrunk.message();
  const SequenceStats stats = cache.Stats(sequence.id);
  EXPECT_LE(stats.resident_bytes, stats.budget_bytes);
  EXPECT_GT(stats.resident_bytes_max, 2 * stats.budget_bytes);
  for (uint32_t lane = 0; lane < kShape.n_lanes(); ++lane) {
    const std::vector<uint32_t> kept = cache.ResidentPositions(
        sequence.id, lane / kShape.n_kv_heads, lane % kShape.n_kv_heads);
    // Contestable are whole pages: without sinks or any of the newest 32.
    float lowest_kept = 1, highest_left = 0;
    for (uint32_t pos = 16; pos < 560; ++pos) {
      const float mass = last.masses[lane][pos];
      const bool is_kept = std::binary_search(kept.begin(), kept.end(), pos);
      (is_kept ? lowest_kept : highest_left) =
          is_kept ? std::min(lowest_kept, mass) : std::max(highest_left, mass);
    }
    EXPECT_GE(lowest_kept, highest_left) << lane;
    EXPECT_LT(kept.size(), 300u);
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_FALSE(drive.Step(sequence, 1).empty()) << drive.status.message();
    ASSERT_LE(cache.Stats(sequence.id).resident_bytes, stats.budget_bytes);
  }
}

// One threshold for all lanes: what a lane keeps of its contestable tokens is
// what it has of the best of all lanes, to within a page.
TEST(PagedEvictionTest, ScoreSpreadKeepsTheBestTokensOfAllLanes) {
  class ByLane final : public EvictionPolicy {
   public:
    std::string_view name() const override { return "by lane"; }
    std::unique_ptr<EvictionPolicy> Clone() const override { return nullptr; }
    size_t bytes_per_page() const override { return 0; }
    void AddPage(uint32_t, uint32_t) override {}
    void AddSlots(uint32_t, uint32_t, const float*, const float*) override {}
    void Observe(const LaneObservation&) override {}
    // Of lane 0 every slot is among the best, of lane 5 none.
    void ScoreSlots(uint32_t lane, uint32_t,
                    const SlotScores& out) const override {
      for (size_t i = 0; i < out.score.size(); ++i) {
        out.score[i] = 10.0f - lane + 1e-4f * static_cast<float>(i);
        out.attention[i] = out.score[i];
      }
    }
    void MoveSlots(uint32_t, const SlotMoves&) override {}
    void RemovePage(uint32_t, uint32_t) override {}
  };
  SequenceOptions options = Evicting(PolicyName::kLookahead, 0);
  options.cache.budget = {};
  options.cache.lane_spread = LaneSpreadMode::kScore;
  options.make_policy = [](const PolicyCapacity&) {
    return std::make_unique<ByLane>();
  };
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence sequence = drive.Add(options, 3);
  drive.Prefill(sequence, 640, 512);
  ASSERT_TRUE(cache
                  .ShrinkBudget(sequence.id,
                                {.kind = Budget::Kind::kShare, .share = 0.5})
                  .ok());
  std::vector<size_t> held;
  for (uint32_t lane = 0; lane < kShape.n_lanes(); ++lane) {
    held.push_back(cache
                       .ResidentPositions(sequence.id, lane / kShape.n_kv_heads,
                                          lane % kShape.n_kv_heads)
                       .size());
  }
  for (uint32_t lane = 0; lane < 4; ++lane) EXPECT_GE(held[lane], 624u) << lane;
  EXPECT_LT(held[4], 320u) << "what the others leave";
  EXPECT_LT(held[5], 112u);
  EXPECT_GE(held[5], 80u) << "a fifth of the mean";
  for (int i = 0; i < 40; ++i) {
    ASSERT_FALSE(drive.Step(sequence, 1).empty()) << drive.status.message();
  }
}

TEST(PagedEvictionTest, WhoWatchesAllSeesEveryQueryOfAPrompt) {
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
  for (const bool all : {false, true}) {
    PagedKvCache cache(kShape, Threads(2));
    CacheDriver drive(cache, 2);
    Counter counter(all);
    cache.SetObserver(&counter);
    DrivenSequence sequence = drive.Add(Evicting(PolicyName::kFull, 2000), 3);
    drive.Step(sequence, 200);
    EXPECT_EQ(counter.n_seen, all ? 200u : 32u + 168 / 8);
  }
}

TEST(PagedEvictionTest, ABudgetShrinksOnlyAndNotBelowTheSmallest) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence sequence = drive.Add(Evicting(PolicyName::kLru, 400), 3);
  drive.Prefill(sequence, 300, 512);
  const auto shrink = [&](uint64_t tokens) {
    return cache
        .ShrinkBudget(sequence.id,
                      {.kind = Budget::Kind::kTokens, .amount = tokens})
        .code();
  };
  EXPECT_EQ(shrink(500), StatusCode::kInvalidArgument);
  EXPECT_EQ(shrink(10), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.Stats(sequence.id).evicted_tokens, 0u);
  EXPECT_EQ(shrink(200), StatusCode::kOk);
  EXPECT_GT(cache.Stats(sequence.id).evicted_tokens, 80u);

  DrivenSequence full = drive.Add(Evicting(PolicyName::kFull, 2000), 3);
  EXPECT_EQ(cache.ShrinkBudget(full.id, {}).code(),
            StatusCode::kInvalidArgument);
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
      pages.push_back(cache.ResidentPositions(b.id, lane / kShape.n_kv_heads,
                                              lane % kShape.n_kv_heads));
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
