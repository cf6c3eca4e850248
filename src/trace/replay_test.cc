#include "trace/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "trace/policy_comparison.h"
#include "trace/replay_oracles.h"
#include "trace/synthetic_trace.h"
#include "trace/testing_traces.h"

namespace lkv {
namespace {

constexpr ReplayOptions kQuarter = {
    .capacity_pages = 16, .ends = {.sink_tokens = 4, .recent_tokens = 64}};
constexpr ReplayOptions kQuarterByTokens = {
    .capacity_pages = 16, .ends = kQuarter.ends, .unit = EvictionUnit::kRepack};

// 1,024 tokens, 64 pages.
LaneTrace SyntheticLane(const SyntheticTraceOptions& changes = {},
                        uint32_t lane = 0) {
  SyntheticTraceOptions options = changes;
  options.n_steps = 1024;
  options.n_layers = 1;
  options.topic_tokens = 300;
  auto trace = Synthetic(options).ReadLane(lane);
  EXPECT_TRUE(trace.ok());
  return *std::move(trace);
}

ReplaySums Replay(std::string_view name, const LaneTrace& trace,
                  const ReplayOptions& options) {
  const auto contestant =
      FindContestant(name, {}, nullptr, *SelectKernels(nullptr));
  EXPECT_TRUE(contestant.ok()) << name;
  return contestant->replay(trace, 0, options);
}

// Forwards to a policy and notes what is done to it.
class Spy : public EvictionPolicy {
 public:
  struct Notes {
    std::vector<uint32_t> victims;  // first position of every page that left
    uint32_t n_slots_max = 0;
    size_t n_expected_max = 0;         // slots of an expectation
    float mass_min = 2, mass_max = 0;  // sums of the group means
  };
  Spy(std::unique_ptr<EvictionPolicy> policy, Notes& notes)
      : policy_(std::move(policy)), notes_(notes) {}

  std::string_view name() const override { return policy_->name(); }
  std::unique_ptr<EvictionPolicy> Clone() const override { return nullptr; }
  size_t bytes_per_page() const override { return 0; }
  bool two_stage() const override { return policy_->two_stage(); }
  void AddPage(uint32_t lane, uint32_t first_pos) override {
    first_pos_.push_back(first_pos);
    policy_->AddPage(lane, first_pos);
  }
  void AddSlots(uint32_t lane, uint32_t n, const float* norms,
                const float* distances) override {
    policy_->AddSlots(lane, n, norms, distances);
  }
  void Observe(const LaneObservation& observation) override {
    const float sum =
        std::accumulate(observation.mass_mean,
                        observation.mass_mean + observation.n_slots, 0.0f);
    notes_.n_slots_max = std::max(notes_.n_slots_max, observation.n_slots);
    notes_.mass_min = std::min(notes_.mass_min, sum);
    notes_.mass_max = std::max(notes_.mass_max, sum);
    policy_->Observe(observation);
  }
  bool wants_expectation() const override {
    return policy_->wants_expectation();
  }
  void ObserveExpectation(uint32_t lane,
                          std::span<const float> attention) override {
    notes_.n_expected_max = std::max(notes_.n_expected_max, attention.size());
    EXPECT_NEAR(std::accumulate(attention.begin(), attention.end(), 0.0), 1,
                1e-4);
    policy_->ObserveExpectation(lane, attention);
  }
  void ScoreSlots(uint32_t lane, uint32_t now_pos,
                  const SlotScores& out) const override {
    policy_->ScoreSlots(lane, now_pos, out);
  }
  PageWorth page_worth() const override { return policy_->page_worth(); }
  void MoveSlots(uint32_t lane, const SlotMoves& moves) override {
    policy_->MoveSlots(lane, moves);
  }
  void RemovePage(uint32_t lane, uint32_t index) override {
    notes_.victims.push_back(first_pos_[index]);
    first_pos_.erase(first_pos_.begin() + index);
    policy_->RemovePage(lane, index);
  }

 private:
  std::unique_ptr<EvictionPolicy> policy_;
  Notes& notes_;
  std::vector<uint32_t> first_pos_;
};

Spy::Notes SpyOn(const LaneTrace& trace, const LanePolicyFactory& make,
                 const ReplayOptions& options = kQuarter) {
  Spy::Notes notes;
  ReplayLane(trace, options, [&](const PolicyCapacity& capacity) {
    return std::make_unique<Spy>(make(capacity), notes);
  });
  return notes;
}

LanePolicyFactory PolicyNamed(PolicyName name) {
  return [name](const PolicyCapacity& capacity) {
    CacheOptions options;
    options.policy = name;
    options.sink_tokens = kQuarter.ends.sink_tokens;
    options.recent_tokens = kQuarter.ends.recent_tokens;
    return MakeEvictionPolicy(options, capacity, *SelectKernels(nullptr), {});
  };
}

TEST(ReplayTest, CountsWhatStreamingKeeps) {
  const LaneTrace trace = SyntheticLane();
  double contestable = 0, hit = 0, all = 0, all_hit = 0;
  for (uint32_t step = kQuarter.capacity_pages * kPageTokens; step < 1024;
       ++step) {
    // The page of the sinks and the newest ones.
    const uint32_t n_pages = step / kPageTokens + 1;
    const uint32_t oldest = n_pages - (kQuarter.capacity_pages - 1);
    for (uint32_t page = 0; page < n_pages; ++page) {
      const double mass = trace.pages(step).mean[page];
      const double kept = page == 0 || page >= oldest ? mass : 0;
      all += mass;
      all_hit += kept;
      // Contestable: no sink, no token of the newest 64.
      if (page == 0 || (page + 1) * kPageTokens + 64 > step + 1) continue;
      contestable += mass;
      hit += kept;
    }
  }
  const ReplaySums sums = Replay("streaming", trace, kQuarter);
  EXPECT_DOUBLE_EQ(sums.mass_hit(), hit / contestable);
  EXPECT_DOUBLE_EQ(sums.raw_hit(), all_hit / all);
}

TEST(ReplayTest, HasNothingToMeasureWhereTheTextFits) {
  const LaneTrace trace = SyntheticLane();
  const ReplaySums sums =
      Replay("lru", trace, {.capacity_pages = 64, .ends = kQuarter.ends});
  EXPECT_EQ(sums.all, 0);
  EXPECT_EQ(sums.n_needed, 0u);
  EXPECT_EQ(sums.mass_hit(), 0);
}

TEST(ReplayTest, NoPolicyBeatsTheOracles) {
  const LaneTrace trace = SyntheticLane();
  for (const ReplayOptions& options : {kQuarter, kQuarterByTokens}) {
    const double with_return = Replay("oracle_step", trace, options).mass_hit();
    const double future = Replay("oracle_future", trace, options).mass_hit();
    EXPECT_GT(with_return, future);
    for (const std::string& name : ContestantNames({})) {
      const ReplaySums sums = Replay(name, trace, options);
      EXPECT_LE(sums.mass_hit(), with_return) << name;
      if (!name.starts_with("oracle")) {
        EXPECT_LT(sums.mass_hit(), future) << name;
      }
      EXPECT_GT(sums.topk_hit(), 0) << name;
      EXPECT_LE(sums.topk_hit(), 1) << name;
      EXPECT_LE(sums.byte_hit(), 1) << name;
    }
  }
}

// Who knows the future keeps more where it may choose among single tokens.
TEST(ReplayTest, TokensHoldMoreThanPages) {
  const LaneTrace trace = SyntheticLane();
  for (const char* oracle : {"oracle_future", "oracle_step"}) {
    EXPECT_GT(Replay(oracle, trace, kQuarterByTokens).mass_hit(),
              Replay(oracle, trace, kQuarter).mass_hit() + 0.02)
        << oracle;
  }
}

TEST(ReplayTest, ALongerHorizonKeepsLess) {
  const LaneTrace trace = SyntheticLane();
  const double step = ReplayWithReturn(trace, kQuarter, 1).mass_hit();
  const double few = ReplayWithReturn(trace, kQuarter, 4).mass_hit();
  const double many = ReplayWithReturn(trace, kQuarter, 200).mass_hit();
  EXPECT_GE(step, few);
  EXPECT_GT(few, many);
}

// A choice among all sets of pages, by brute force, on a text of 12 pages of
// which 8 may stay.
TEST(ReplayTest, OracleStepIsTheBestChoiceThereIs) {
  auto lane = Synthetic({.n_steps = 12 * kPageTokens,
                         .n_layers = 1,
                         .topic_tokens = 50,
                         .n_needles = 2})
                  .ReadLane(0);
  ASSERT_TRUE(lane.ok());
  const LaneTrace& trace = *lane;
  const ReplayOptions options = {
      .capacity_pages = 8, .ends = {.sink_tokens = 4, .recent_tokens = 16}};
  const ReplaySums sums = ReplayWithReturn(trace, options, 1);
  double contestable = 0, best_hit = 0;
  for (uint32_t step = 8 * kPageTokens; step < 12 * kPageTokens; ++step) {
    const LaneRange range = ContestablePages(options.ends, step + 1);
    const uint32_t n_others = PagesOf(step + 1) - range.count();
    double best = 0;
    for (uint32_t set = 0; set < 1u << range.count(); ++set) {
      if (std::popcount(set) + n_others > options.capacity_pages) continue;
      double hit = 0;
      for (uint32_t i = 0; i < range.count(); ++i) {
        if ((set >> i & 1) != 0) {
          hit += trace.pages(step).mean[range.begin + i];
        }
      }
      best = std::max(best, hit);
    }
    best_hit += best;
    for (uint32_t p = range.begin; p < range.end; ++p) {
      contestable += trace.pages(step).mean[p];
    }
  }
  EXPECT_LT(best_hit, contestable);
  EXPECT_NEAR(sums.mass_hit(), best_hit / contestable, 1e-6);
}

TEST(ReplayTest, ShowsAPolicyOnlyWhatIsResident) {
  const LaneTrace trace = SyntheticLane();
  for (PolicyName name : {PolicyName::kStreaming, PolicyName::kLookahead,
                          PolicyName::kSnapKv, PolicyName::kRandom}) {
    for (const ReplayOptions& options : {kQuarter, kQuarterByTokens}) {
      const Spy::Notes notes = SpyOn(trace, PolicyNamed(name), options);
      EXPECT_EQ(notes.n_slots_max, kQuarter.capacity_pages * kPageTokens);
      EXPECT_NEAR(notes.mass_min, 1, 1e-4);
      EXPECT_NEAR(notes.mass_max, 1, 1e-4);
      EXPECT_EQ(notes.victims.size(), 64u - 16u) << "pages";
    }
  }
}

// What it is told to expect is of what it holds, too, and worth having: here it
// is what the topic's queries pay.
TEST(ReplayTest, ExpectationsAreOfWhatIsResident) {
  const LaneTrace trace = SyntheticLane();
  for (const ReplayOptions& options : {kQuarter, kQuarterByTokens}) {
    const Spy::Notes notes =
        SpyOn(trace, PolicyNamed(PolicyName::kExpectedAttention), options);
    EXPECT_EQ(notes.n_expected_max, kQuarter.capacity_pages * kPageTokens);
    EXPECT_GT(Replay("expected_attention", trace, options).mass_hit(),
              Replay("random", trace, options).mass_hit() + 0.1);
  }
}

// Two texts that are one until their middle: who decides from what it has seen
// decides alike until then.
bool DecidesFromThePast(
    const std::function<LanePolicyFactory(const LaneTrace&)>& make) {
  SyntheticTraceOptions options;
  options.n_needles = 0;
  const LaneTrace one = SyntheticLane(options);
  options.n_needles = 4;  // asked for in the second half
  const LaneTrace other = SyntheticLane(options);
  const size_t n_until_middle = 64 / 2 - 16;
  const auto victims = [&](const LaneTrace& trace) {
    std::vector<uint32_t> all = SpyOn(trace, make(trace)).victims;
    all.resize(n_until_middle);
    return all;
  };
  return victims(one) == victims(other);
}

TEST(ReplayTest, FindsTheCheaterAndNobodyElse) {
  for (int name = 1; name <= static_cast<int>(PolicyName::kRandom); ++name) {
    // It reads its text twice, which no replay can.
    if (static_cast<PolicyName>(name) == PolicyName::kRepeat) continue;
    const LanePolicyFactory make = PolicyNamed(static_cast<PolicyName>(name));
    EXPECT_TRUE(DecidesFromThePast([&](const LaneTrace&) { return make; }))
        << make({.n_lanes = 1, .pages_per_lane = 1})->name();
  }
  EXPECT_FALSE(DecidesFromThePast(
      [](const LaneTrace& trace) { return FutureOracle(trace); }));
}

TEST(ReplayTest, OnlyTheOracleKeepsNeedles) {
  SyntheticTraceOptions options;
  options.n_needles = 4;
  const LaneTrace trace = SyntheticLane(options);
  SyntheticTraceOptions as_built = options;
  as_built.n_steps = 1024;
  const std::vector<SyntheticText::Needle> needles =
      SyntheticText(as_built).needles();
  const auto n_lost = [&](const LanePolicyFactory& make) {
    const std::vector<uint32_t> victims = SpyOn(trace, make).victims;
    size_t n = 0;
    for (const SyntheticText::Needle& needle : needles) {
      // Pages leave in the order of the list, one per 16 steps from the 16th
      // page on.
      const auto it = std::find(victims.begin(), victims.end(),
                                needle.pos / kPageTokens * kPageTokens);
      const auto leaves_at =
          static_cast<uint32_t>((16 + (it - victims.begin())) * kPageTokens);
      n += it != victims.end() && leaves_at < needle.first_use;
    }
    return n;
  };
  EXPECT_EQ(n_lost(FutureOracle(trace)), 0u);
  EXPECT_EQ(n_lost(PolicyNamed(PolicyName::kStreaming)), needles.size());
}

// A small text of which two thirds may stay, in single tokens.
constexpr ReplayOptions kSmallByTokens = {
    .capacity_pages = 8,
    .ends = {.sink_tokens = 4, .recent_tokens = 16},
    .unit = EvictionUnit::kRepack};
constexpr uint32_t kSmallTokens = 12 * kPageTokens;

LaneTrace SmallLane() {
  auto lane = Synthetic({.n_steps = kSmallTokens,
                         .n_layers = 1,
                         .topic_tokens = 50,
                         .n_needles = 2})
                  .ReadLane(0);
  EXPECT_TRUE(lane.ok());
  return *std::move(lane);
}

// Measures by definition which of the tokens' attention is resident:
// is_resident(step) gives [kSmallTokens] as of that step's query. Steps in
// order.
ReplaySums MeasureTokens(
    const LaneTrace& trace,
    const std::function<std::vector<bool>(uint32_t)>& is_resident) {
  ReplaySums sums;
  for (uint32_t step = 0; step < kSmallTokens; ++step) {
    const std::vector<bool> resident = is_resident(step);
    if (step < 8 * kPageTokens || !HasTokenRows(step)) continue;
    for (uint32_t pos = 0; pos <= step; ++pos) {
      const double mass = trace.tokens(step).mean[pos];
      sums.all += mass;
      sums.all_hit += resident[pos] ? mass : 0;
      // Neither in the sinks' page nor in one with any of the newest 16.
      const uint32_t page_end = (pos / kPageTokens + 1) * kPageTokens;
      if (pos < kPageTokens || page_end + 16 > step + 1) continue;
      sums.contestable += mass;
      sums.contestable_hit += resident[pos] ? mass : 0;
    }
  }
  return sums;
}

void ExpectSame(const ReplaySums& sums, const ReplaySums& by_hand) {
  EXPECT_GT(by_hand.contestable, by_hand.contestable_hit);
  EXPECT_NEAR(sums.contestable, by_hand.contestable, 1e-6);
  EXPECT_NEAR(sums.contestable_hit, by_hand.contestable_hit, 1e-6);
  EXPECT_NEAR(sums.all_hit, by_hand.all_hit, 1e-6);
}

uint32_t WorthOf(uint32_t pos) { return (pos * 2654435761u) >> 16; }

// Values every token by a number of its own, come what may.
class FixedWorth final : public EvictionPolicy {
 public:
  std::string_view name() const override { return "fixed"; }
  std::unique_ptr<EvictionPolicy> Clone() const override { return nullptr; }
  size_t bytes_per_page() const override { return 0; }
  void AddPage(uint32_t, uint32_t first_pos) override { next_ = first_pos; }
  void AddSlots(uint32_t, uint32_t n, const float*, const float*) override {
    for (; n > 0; --n) positions_.push_back(next_++);
  }
  void Observe(const LaneObservation&) override {}
  void ScoreSlots(uint32_t, uint32_t, const SlotScores& out) const override {
    for (size_t i = 0; i < positions_.size(); ++i) {
      out.score[i] = out.attention[i] =
          static_cast<float>(WorthOf(positions_[i]));
    }
  }
  void MoveSlots(uint32_t, const SlotMoves& moves) override {
    for (size_t i = 0; i < moves.slots.size(); ++i) {
      positions_[moves.target(i)] = positions_[moves.slots[i]];
    }
  }
  void RemovePage(uint32_t, uint32_t index) override {
    const auto first = positions_.begin() + index * kPageTokens;
    positions_.erase(first, first + kPageTokens);
  }

 private:
  std::vector<uint32_t> positions_;
  uint32_t next_ = 0;
};

// By hand: pages as lists of positions; the better half of the two pages of
// least sum share the first.
TEST(ReplayTest, ByTokensTheLowestHalfOfTwoPagesLeaves) {
  const LaneTrace trace = SmallLane();
  std::vector<std::vector<uint32_t>> pages;
  const auto worth_of_page = [](const std::vector<uint32_t>& page) {
    uint64_t sum = 0;
    for (uint32_t pos : page) sum += WorthOf(pos);
    return sum;
  };
  const auto make_room = [&](uint32_t step) {
    std::vector<size_t> order;
    for (size_t p = 1; p < pages.size(); ++p) {
      if (pages[p].back() + 16 < step) order.push_back(p);
    }
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return worth_of_page(pages[a]) < worth_of_page(pages[b]);
    });
    const size_t to = std::min(order[0], order[1]);
    const size_t from = std::max(order[0], order[1]);
    std::vector<uint32_t> both = pages[to];
    both.insert(both.end(), pages[from].begin(), pages[from].end());
    std::vector<uint32_t> by_worth = both;
    std::sort(by_worth.begin(), by_worth.end(),
              [](uint32_t a, uint32_t b) { return WorthOf(a) < WorthOf(b); });
    const uint32_t least = WorthOf(by_worth[kPageTokens]);
    std::erase_if(both, [&](uint32_t pos) { return WorthOf(pos) < least; });
    pages[to] = both;
    pages.erase(pages.begin() + static_cast<std::ptrdiff_t>(from));
  };
  const ReplaySums by_hand = MeasureTokens(trace, [&](uint32_t step) {
    if (step % kPageTokens == 0) {
      if (pages.size() == 8) make_room(step);
      pages.emplace_back();
    }
    pages.back().push_back(step);
    std::vector<bool> resident(kSmallTokens);
    for (const auto& page : pages) {
      for (uint32_t pos : page) resident[pos] = true;
    }
    return resident;
  });
  ExpectSame(ReplayLane(trace, kSmallByTokens,
                        [](const PolicyCapacity&) {
                          return std::make_unique<FixedWorth>();
                        }),
             by_hand);
}

TEST(ReplayTest, ByTokensTheFutureOracleDropsWhatGetsLeastFromNowOn) {
  const LaneTrace trace = SmallLane();
  std::vector<bool> resident(kSmallTokens);
  const auto future_of = [&](uint32_t pos, uint32_t now) {
    double sum = 0;
    for (uint32_t step = now; step < kSmallTokens; ++step) {
      if (HasTokenRows(step)) sum += trace.tokens(step).mean[pos];
    }
    return sum;
  };
  const ReplaySums by_hand = MeasureTokens(trace, [&](uint32_t step) {
    if (step % kPageTokens == 0 && step >= 8 * kPageTokens) {
      for (uint32_t n = 0; n < kPageTokens; ++n) {
        uint32_t worst = 0;
        for (uint32_t pos = kPageTokens; pos < step - 16; ++pos) {
          if (!resident[pos]) continue;
          if (worst == 0 || future_of(pos, step) < future_of(worst, step)) {
            worst = pos;
          }
        }
        resident[worst] = false;
      }
    }
    resident[step] = true;
    return resident;
  });
  ExpectSame(ReplayFuture(trace, kSmallByTokens), by_hand);
}

TEST(ReplayTest, ByTokensOracleStepIsTheBestChoiceThereIs) {
  const LaneTrace trace = SmallLane();
  const ReplaySums by_hand = MeasureTokens(trace, [&](uint32_t step) {
    std::vector<bool> resident(kSmallTokens, true);
    if (!HasTokenRows(step)) return resident;
    const LaneRange pages = ContestablePages(kSmallByTokens.ends, step + 1);
    std::vector<uint32_t> best(pages.count() * kPageTokens);
    std::iota(best.begin(), best.end(), pages.begin * kPageTokens);
    const float* mass = trace.tokens(step).mean;
    std::stable_sort(best.begin(), best.end(),
                     [&](uint32_t a, uint32_t b) { return mass[a] > mass[b]; });
    const uint32_t n_others = PagesOf(step + 1) - pages.count();
    for (size_t i = (8 - n_others) * kPageTokens; i < best.size(); ++i) {
      resident[best[i]] = false;
    }
    return resident;
  });
  ExpectSame(ReplayWithReturn(trace, kSmallByTokens, 1), by_hand);
}

}  // namespace
}  // namespace lkv
