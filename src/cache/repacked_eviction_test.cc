// Tokens that leave one by one, lanes that are levelled, budgets that shrink.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cache/paged_kv_cache.h"
#include "cache/testing_eviction.h"
#include "testing/cache_driver.h"

namespace lkv {
namespace {

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

TEST(RepackedEvictionTest, RepackKeepsTheTokensOfANaiveModel) {
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
      ASSERT_EQ(PositionsOf(cache, sequence.id, lane), naive.Positions(lane))
          << "at " << sequence.n_tokens << " lane " << lane;
    }
    naive.EndChunk(sequence.n_tokens);
  }
  EXPECT_GT(cache.Stats(sequence.id).evicted_tokens, 500u);
}

// Of a text that was read whole the best tokens stay: exactly those that rank
// highest, when tokens leave one by one.
TEST(RepackedEvictionTest, AShrunkBudgetKeepsTheTokensWithTheMostAttention) {
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
      sequence.id, {.kind = Budget::Kind::kShare, .share = 0.25}, 0);
  ASSERT_TRUE(shrunk.ok()) << shrunk.message();
  const SequenceStats stats = cache.Stats(sequence.id);
  EXPECT_LE(stats.resident_bytes, stats.budget_bytes);
  EXPECT_GT(stats.resident_bytes_max, 2 * stats.budget_bytes);
  for (uint32_t lane = 0; lane < kShape.n_lanes(); ++lane) {
    const std::vector<uint32_t> kept = PositionsOf(cache, sequence.id, lane);
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
TEST(RepackedEvictionTest, ScoreSpreadKeepsTheBestTokensOfAllLanes) {
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
                                {.kind = Budget::Kind::kShare, .share = 0.5}, 0)
                  .ok());
  std::vector<size_t> held;
  for (uint32_t lane = 0; lane < kShape.n_lanes(); ++lane) {
    held.push_back(PositionsOf(cache, sequence.id, lane).size());
  }
  for (uint32_t lane = 0; lane < 4; ++lane) EXPECT_GE(held[lane], 624u) << lane;
  EXPECT_LT(held[4], 320u) << "what the others leave";
  EXPECT_LT(held[5], 112u);
  EXPECT_GE(held[5], 80u) << "a fifth of the mean";
  for (int i = 0; i < 40; ++i) {
    ASSERT_FALSE(drive.Step(sequence, 1).empty()) << drive.status.message();
  }
}

// Its scores are a tenth of what they were from the 20th step on.
class Shrinking final : public EvictionPolicy {
 public:
  Shrinking(bool says_so, int& n_ended)
      : says_so_(says_so), n_ended_(n_ended) {}
  std::string_view name() const override { return "shrinking"; }
  std::unique_ptr<EvictionPolicy> Clone() const override { return nullptr; }
  size_t bytes_per_page() const override { return 0; }
  void AddPage(uint32_t, uint32_t) override {}
  void AddSlots(uint32_t, uint32_t, const float*, const float*) override {}
  void Observe(const LaneObservation&) override {}
  bool EndStep() override { return ++n_ended_ == 20 && says_so_; }
  void ScoreSlots(uint32_t, uint32_t, const SlotScores& out) const override {
    const float score = n_ended_ < 20 ? 1.0f : 0.1f;
    std::fill(out.score.begin(), out.score.end(), score);
    std::fill(out.attention.begin(), out.attention.end(), score);
  }
  void MoveSlots(uint32_t, const SlotMoves&) override {}
  void RemovePage(uint32_t, uint32_t) override {}

 private:
  bool says_so_;
  int& n_ended_;
};

TEST(RepackedEvictionTest, AThresholdIsTakenAnewWhenScoresChangeTheirMeaning) {
  std::vector<uint64_t> evicted;
  for (const bool says_so : {true, false}) {
    int n_ended = 0;
    SequenceOptions options = Evicting(PolicyName::kLookahead, 900);
    options.cache.eviction_rule = EvictionRule::kScoreThreshold;
    options.cache.score_threshold_percentile = 10;
    options.cache.base_window_tokens = 800;
    options.cache.min_window_tokens = 100;
    options.cache.max_window_tokens = 850;
    options.make_policy = [&](const PolicyCapacity&) {
      return std::make_unique<Shrinking>(says_so, n_ended);
    };
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    DrivenSequence sequence = drive.Add(options, 3);
    drive.Prefill(sequence, 600, 512);
    const int n_chunks = n_ended;
    for (int i = 0; i < 100; ++i) {
      ASSERT_FALSE(drive.Step(sequence, 1).empty()) << drive.status.message();
    }
    EXPECT_EQ(n_ended, n_chunks + 100) << "once a step, not once a lane";
    evicted.push_back(cache.Stats(sequence.id).evicted_tokens);
  }
  EXPECT_EQ(evicted[0], 0u);
  EXPECT_GT(evicted[1], 300u) << "all below the old threshold";
}

// The room is paid for by what leaves at once.
TEST(RepackedEvictionTest, AShrunkBudgetWithRoomKeepsWhatItHoldsWhileTheyCome) {
  constexpr uint32_t kRoomTokens = 100;
  for (uint32_t n_context : {600, 608}) {
    SequenceOptions options = Evicting(PolicyName::kTova, 0);
    options.cache.budget = {};
    options.cache.unit = EvictionUnit::kRepack;
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    DrivenSequence sequence = drive.Add(options, 3);
    drive.Prefill(sequence, n_context, 512);
    const Status shrunk = cache.ShrinkBudget(
        sequence.id, {.kind = Budget::Kind::kTokens, .amount = 300},
        kRoomTokens);
    ASSERT_TRUE(shrunk.ok()) << shrunk.message();
    const uint64_t evicted_tokens = cache.Stats(sequence.id).evicted_tokens;
    EXPECT_GT(evicted_tokens, n_context - 300 + kRoomTokens);
    EXPECT_LT(evicted_tokens, n_context - 300 + kRoomTokens + 64);
    for (uint32_t i = 0; i < kRoomTokens; ++i) {
      ASSERT_FALSE(drive.Step(sequence, 1).empty()) << drive.status.message();
      ASSERT_EQ(cache.Stats(sequence.id).evicted_tokens, evicted_tokens) << i;
    }
    for (uint32_t i = 0; i < 2 * kPageTokens; ++i) {
      ASSERT_FALSE(drive.Step(sequence, 1).empty()) << drive.status.message();
    }
    EXPECT_GT(cache.Stats(sequence.id).evicted_tokens, evicted_tokens);
  }
}

TEST(RepackedEvictionTest, ABudgetShrinksOnlyAndNotBelowTheSmallest) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence sequence = drive.Add(Evicting(PolicyName::kLru, 400), 3);
  drive.Prefill(sequence, 300, 512);
  const auto shrink = [&](uint64_t tokens) {
    return cache
        .ShrinkBudget(sequence.id,
                      {.kind = Budget::Kind::kTokens, .amount = tokens}, 0)
        .code();
  };
  EXPECT_EQ(shrink(500), StatusCode::kInvalidArgument);
  EXPECT_EQ(shrink(10), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.Stats(sequence.id).evicted_tokens, 0u);
  EXPECT_EQ(shrink(200), StatusCode::kOk);
  EXPECT_GT(cache.Stats(sequence.id).evicted_tokens, 80u);

  DrivenSequence full = drive.Add(Evicting(PolicyName::kFull, 2000), 3);
  EXPECT_EQ(cache.ShrinkBudget(full.id, {}, 0).code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lkv
