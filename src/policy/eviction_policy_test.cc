// The contract of eviction_policy.h for every policy by name, and what each
// baseline ranks by.
#include "policy/eviction_policy.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/kernel_table.h"
#include "policy/page_worth.h"
#include "policy/snapkv_policy.h"

namespace lkv {
namespace {

struct NamedPolicy {
  PolicyName policy;
  const char* name;
};
constexpr NamedPolicy kPolicies[] = {
    {PolicyName::kLookahead, "lookahead"},
    {PolicyName::kEma, "ema"},
    {PolicyName::kLru, "lru"},
    {PolicyName::kLfu, "lfu"},
    {PolicyName::kFifo, "fifo"},
    {PolicyName::kStreaming, "streaming"},
    {PolicyName::kH2o, "h2o"},
    {PolicyName::kObserved, "observed"},
    {PolicyName::kTova, "tova"},
    {PolicyName::kSnapKv, "snapkv"},
    {PolicyName::kExpectedAttention, "expected_attention"},
    {PolicyName::kRandom, "random"},
};

std::unique_ptr<EvictionPolicy> Make(PolicyName name, uint32_t n_lanes = 1,
                                     uint64_t seed = 0) {
  CacheOptions options;
  options.policy = name;
  options.sink_tokens = 4;
  options.recent_tokens = 32;
  options.seed = seed;
  return MakeEvictionPolicy(options, {.n_lanes = n_lanes, .pages_per_lane = 64},
                            *SelectKernels(nullptr), {});
}

// Drives one lane of a policy: tokens arrive, queries attend, pages leave.
class Lane {
 public:
  Lane(EvictionPolicy* policy, uint32_t lane) : policy_(policy), lane_(lane) {}

  void AddTokens(uint32_t n) {
    for (; n > 0; --n) {
      if (n_slots_ % kPageTokens == 0) {
        policy_->AddPage(lane_, next_pos_);
        first_pos_.push_back(next_pos_);
      }
      float norm = 1 + static_cast<float>(next_pos_ % 7);
      float distance = 1 + static_cast<float>(next_pos_ % 5);
      policy_->AddSlots(lane_, 1, &norm, &distance);
      ++next_pos_;
      ++n_slots_;
    }
  }
  // A query of the newest token; mass: [n_slots].
  void Observe(const std::vector<float>& mass, uint32_t tokens_since = 1) {
    ASSERT_EQ(mass.size(), n_slots_);
    policy_->Observe({.lane = lane_,
                      .query_pos = next_pos_ - 1,
                      .tokens_since = tokens_since,
                      .n_slots = n_slots_,
                      .mass_max = mass.data(),
                      .mass_mean = mass.data()});
  }
  // Slots of page p get page_mass[p] / 16 each; the rest nothing.
  void ObservePages(const std::vector<float>& page_mass,
                    uint32_t tokens_since = 1) {
    std::vector<float> mass(n_slots_);
    for (uint32_t i = 0; i < n_slots_; ++i) {
      if (i / 16 < page_mass.size()) mass[i] = page_mass[i / 16] / 16;
    }
    Observe(mass, tokens_since);
  }
  void RemovePage(uint32_t index) {
    policy_->RemovePage(lane_, index);
    first_pos_.erase(first_pos_.begin() + index);
    n_slots_ -= kPageTokens;
  }
  std::vector<float> Scores() const {
    std::vector<float> attention(first_pos_.size());
    std::vector<float> score(first_pos_.size());
    std::vector<float> slot_attention(n_slots_);
    std::vector<float> slot_score(n_slots_);
    ScorePages(*policy_, lane_, next_pos_, {slot_attention, slot_score},
               {attention, score});
    if (!policy_->two_stage()) {
      EXPECT_EQ(attention, score);
    }
    return score;
  }
  std::vector<float> SlotScores() const {
    std::vector<float> attention(n_slots_);
    std::vector<float> score(n_slots_);
    policy_->ScoreSlots(lane_, next_pos_, {attention, score});
    return score;
  }
  // The slots of some pages move together; those that are empty leave.
  void MoveSlots(const std::vector<uint32_t>& pages,
                 const std::vector<uint32_t>& slots) {
    policy_->MoveSlots(lane_, {.pages = pages, .slots = slots});
    for (size_t i = pages.size(); i > slots.size() / kPageTokens; --i) {
      RemovePage(pages[i - 1]);
    }
  }
  uint32_t n_slots() const { return n_slots_; }
  // The same lane as another policy knows it.
  Lane Of(EvictionPolicy* policy) const {
    Lane lane = *this;
    lane.policy_ = policy;
    return lane;
  }

 private:
  EvictionPolicy* policy_;
  uint32_t lane_;
  uint32_t next_pos_ = 0;
  uint32_t n_slots_ = 0;
  std::vector<uint32_t> first_pos_;
};

// A life of 400 tokens: masses from the seed, a page evicted now and then.
// Returns the scores after every 16th token.
std::vector<float> Live(Lane& lane, uint32_t seed, uint32_t first_token,
                        uint32_t last_token) {
  std::vector<float> history;
  for (uint32_t token = first_token; token < last_token; ++token) {
    std::mt19937 random(seed * 1000 + token);
    lane.AddTokens(1);
    std::vector<float> mass(lane.n_slots());
    for (float& m : mass) m = static_cast<float>(random() % 1000) * 1e-5f;
    lane.Observe(mass);
    if (token % 48 == 47 && token > 120) lane.RemovePage(1 + random() % 3);
    if (token % 16 == 15) {
      std::vector<float> scores = lane.Scores();
      history.insert(history.end(), scores.begin(), scores.end());
    }
  }
  return history;
}

TEST(EvictionPolicyTest, FullHasNoPolicy) {
  EXPECT_EQ(Make(PolicyName::kFull), nullptr);
}

class AnyPolicyTest : public ::testing::TestWithParam<NamedPolicy> {};

TEST_P(AnyPolicyTest, AnswersToItsName) {
  EXPECT_EQ(Make(GetParam().policy)->name(), GetParam().name);
}

TEST_P(AnyPolicyTest, StateFitsFourPercentOfAPage) {
  EXPECT_LE(Make(GetParam().policy)->bytes_per_page(), 4096 * 4 / 100 - 16);
}

TEST_P(AnyPolicyTest, SameCallsSameAnswers) {
  auto first = Make(GetParam().policy);
  auto second = Make(GetParam().policy);
  Lane a(first.get(), 0);
  Lane b(second.get(), 0);
  EXPECT_EQ(Live(a, 1, 0, 400), Live(b, 1, 0, 400));
}

TEST_P(AnyPolicyTest, ACloneGoesOnFromTheSameStateByItself) {
  auto policy = Make(GetParam().policy);
  Lane lane(policy.get(), 0);
  Live(lane, 1, 0, 200);
  const auto clone = policy->Clone();
  EXPECT_EQ(clone->name(), GetParam().name);
  Lane of_clone = lane.Of(clone.get());
  EXPECT_EQ(of_clone.Scores(), lane.Scores());
  const std::vector<float> other = Live(of_clone, 2, 200, 400);
  auto twin = Make(GetParam().policy);
  Lane of_twin(twin.get(), 0);
  Live(of_twin, 1, 0, 200);
  EXPECT_EQ(Live(lane, 1, 200, 400), Live(of_twin, 1, 200, 400))
      << "the clone changed the policy that it came from";
  auto diverging = Make(GetParam().policy);
  Lane of_diverging(diverging.get(), 0);
  Live(of_diverging, 1, 0, 200);
  EXPECT_EQ(other, Live(of_diverging, 2, 200, 400));
}

TEST_P(AnyPolicyTest, LanesDoNotSeeEachOther) {
  // Three lanes one after the other, then interleaved token by token.
  auto apart = Make(GetParam().policy, 3);
  std::vector<std::vector<float>> expected;
  for (uint32_t lane = 0; lane < 3; ++lane) {
    Lane alone(apart.get(), lane);
    expected.push_back(Live(alone, lane, 0, 300));
  }
  auto together = Make(GetParam().policy, 3);
  std::vector<Lane> lanes;
  std::vector<std::vector<float>> history(3);
  for (uint32_t lane = 0; lane < 3; ++lane) {
    lanes.emplace_back(together.get(), lane);
  }
  for (uint32_t token = 0; token < 300; ++token) {
    for (uint32_t lane : {2u, 0u, 1u}) {
      std::vector<float> scores = Live(lanes[lane], lane, token, token + 1);
      history[lane].insert(history[lane].end(), scores.begin(), scores.end());
    }
  }
  EXPECT_EQ(history, expected);
}

// Masses that say nothing (0) after a page left: the others keep their scores
// under every policy that does not pool over neighbours.
TEST_P(AnyPolicyTest, ScoresMoveDownWithTheirPages) {
  auto policy = Make(GetParam().policy);
  Lane lane(policy.get(), 0);
  Live(lane, 3, 0, 112);
  std::vector<float> before = lane.Scores();
  lane.RemovePage(2);
  std::vector<float> after = lane.Scores();
  before.erase(before.begin() + 2);
  if (GetParam().policy == PolicyName::kSnapKv) {
    // Pages beside the gap have new neighbours.
    before.erase(before.begin() + 1, before.begin() + 3);
    after.erase(after.begin() + 1, after.begin() + 3);
  }
  EXPECT_EQ(after, before);
}

// Every second slot of pages 2 and 4 stays, in page 2.
TEST_P(AnyPolicyTest, ScoresMoveWithTheirSlots) {
  auto policy = Make(GetParam().policy);
  Lane lane(policy.get(), 0);
  Live(lane, 3, 0, 112);
  std::vector<float> expected = lane.SlotScores();
  std::vector<uint32_t> slots;
  for (uint32_t page : {2u, 4u}) {
    for (uint32_t i = 1; i < kPageTokens; i += 2) {
      slots.push_back(page * kPageTokens + i);
    }
  }
  for (uint32_t i = 0; i < kPageTokens; ++i) {
    expected[2 * kPageTokens + i] = expected[slots[i]];
  }
  expected.erase(expected.begin() + 4 * kPageTokens,
                 expected.begin() + 5 * kPageTokens);
  lane.MoveSlots({2, 4}, slots);
  std::vector<float> scores = lane.SlotScores();
  if (GetParam().policy == PolicyName::kSnapKv) {
    // Slots in and beside the pages have new neighbours.
    const auto is_beside = [](size_t slot) {
      return slot + 3 >= 2 * kPageTokens && slot < 4 * kPageTokens + 3;
    };
    for (size_t slot = 0; slot < scores.size(); ++slot) {
      if (is_beside(slot)) scores[slot] = expected[slot];
    }
  }
  EXPECT_EQ(scores, expected);
}

INSTANTIATE_TEST_SUITE_P(All, AnyPolicyTest, ::testing::ValuesIn(kPolicies),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

// Eight pages; the last two are recent, the first holds the sinks. What a test
// says about pages is about 1 to 5.
class BaselineTest : public ::testing::Test {
 protected:
  void Start(PolicyName name) {
    policy_ = Make(name);
    lane_ = std::make_unique<Lane>(policy_.get(), 0);
    lane_->AddTokens(128);
  }
  float Score(uint32_t page) const { return lane_->Scores()[page]; }

  std::unique_ptr<EvictionPolicy> policy_;
  std::unique_ptr<Lane> lane_;
};

TEST_F(BaselineTest, FifoAndStreamingKeepTheNewest) {
  for (PolicyName name : {PolicyName::kFifo, PolicyName::kStreaming}) {
    Start(name);
    lane_->ObservePages({0, 9, 0, 0, 0, 0});
    for (uint32_t page = 1; page < 8; ++page) {
      EXPECT_GT(Score(page), Score(page - 1));
    }
  }
}

TEST_F(BaselineTest, LruKeepsWhatWasUsedLast) {
  Start(PolicyName::kLru);
  lane_->AddTokens(1);
  lane_->ObservePages({0, 1, 0, 0, 0, 0});
  lane_->AddTokens(1);
  lane_->ObservePages({0, 0, 0, 1, 0, 0});
  EXPECT_EQ(Score(1), 128);
  EXPECT_EQ(Score(3), 129);
  EXPECT_EQ(Score(2), 47);  // arrival of its newest token
}

TEST_F(BaselineTest, UseIsAmongTheFewestThatCoverNineTenthsOfTheMass) {
  Start(PolicyName::kLfu);
  std::vector<float> mass(128, 0.0f);
  mass[20] = 0.60f;  // page 1
  mass[40] = 0.35f;  // page 2: with it 0.95
  mass[60] = 0.05f;  // page 3
  mass[0] = 100;     // a sink
  mass[127] = 100;   // recent
  lane_->Observe(mass);
  EXPECT_EQ(Score(1), 1);
  EXPECT_EQ(Score(2), 1);
  EXPECT_EQ(Score(3), 0);
  EXPECT_EQ(Score(0), 0);
  EXPECT_EQ(Score(7), 0);
}

TEST_F(BaselineTest, UseIsCappedAtATenthOfTheSlots) {
  Start(PolicyName::kLfu);
  // Even masses: 13 of 128 slots are used, the first contestable ones.
  lane_->ObservePages(std::vector<float>(8, 1.0f));
  EXPECT_EQ(Score(0), 12);  // slots 4..15
  EXPECT_EQ(Score(1), 1);   // slot 16
  EXPECT_EQ(Score(2), 0);
}

TEST_F(BaselineTest, LfuCountsUses) {
  Start(PolicyName::kLfu);
  std::vector<float> mass(128, 0.0f);
  mass[20] = 1;
  for (int i = 0; i < 3; ++i) lane_->Observe(mass);
  mass[20] = 0;
  mass[60] = 1;
  lane_->Observe(mass);
  EXPECT_EQ(Score(1), 3);
  EXPECT_EQ(Score(3), 1);
}

TEST_F(BaselineTest, H2oSumsAttentionOverTheTokensAQueryStandsFor) {
  Start(PolicyName::kH2o);
  lane_->ObservePages({0, 0.25f, 0.5f});
  lane_->ObservePages({0, 0.25f, 0.0f}, 8);
  EXPECT_FLOAT_EQ(Score(1), 0.25f * 9);
  EXPECT_FLOAT_EQ(Score(2), 0.5f);
}

TEST_F(BaselineTest, ObservedDividesTheSumByAge) {
  Start(PolicyName::kObserved);
  std::vector<float> mass(128, 0.0f);
  mass[24] = 0.4f;
  mass[72] = 0.4f;
  lane_->Observe(mass);
  EXPECT_FLOAT_EQ(Score(1), 0.4f / 104);
  EXPECT_FLOAT_EQ(Score(4), 0.4f / 56);
}

TEST_F(BaselineTest, TovaLooksAtTheLastQueryOnly) {
  Start(PolicyName::kTova);
  lane_->ObservePages({0, 0.9f, 0.1f});
  lane_->ObservePages({0, 0.2f, 0.3f});
  EXPECT_FLOAT_EQ(Score(1), 0.2f);
  EXPECT_FLOAT_EQ(Score(2), 0.3f);
}

TEST_F(BaselineTest, SnapKvAveragesTheLast32Queries) {
  Start(PolicyName::kSnapKv);
  for (uint32_t i = 0; i < SnapKvPolicy::kWindowQueries; ++i) {
    lane_->ObservePages({0, 0, 16});
  }
  EXPECT_FLOAT_EQ(Score(2), 16);
  // Half of the window later, half of it is left; after all of it, nothing.
  for (int i = 0; i < 16; ++i) lane_->ObservePages({0});
  EXPECT_FLOAT_EQ(Score(2), 8);
  for (int i = 0; i < 16; ++i) lane_->ObservePages({0});
  EXPECT_FLOAT_EQ(Score(2), 0);
}

TEST_F(BaselineTest, SnapKvPoolsSevenNeighboursButNotAcrossTheEdges) {
  Start(PolicyName::kSnapKv);
  std::vector<float> mass(128, 0.0f);
  mass[46] = 32;   // page 2 slot 14: reaches slots 43..49
  mass[96] = 320;  // recent: slots 96..127
  mass[3] = 320;   // a sink
  lane_->Observe(mass);
  EXPECT_FLOAT_EQ(Score(2), 5);
  EXPECT_FLOAT_EQ(Score(3), 2);
  EXPECT_FLOAT_EQ(Score(5), 0);
  EXPECT_FLOAT_EQ(Score(0), 0);
}

TEST_F(BaselineTest, RandomDependsOnSeedLaneAndPositionAlone) {
  auto scores = [](uint64_t seed, uint32_t lane_index) {
    auto policy = Make(PolicyName::kRandom, 2, seed);
    Lane lane(policy.get(), lane_index);
    lane.AddTokens(1024);
    return lane.SlotScores();
  };
  EXPECT_EQ(scores(1, 0), scores(1, 0));
  EXPECT_NE(scores(1, 0), scores(2, 0));
  EXPECT_NE(scores(1, 0), scores(1, 1));
  // Uniform over [0, 1): 1,024 draws have a mean within 4 sigma of a half.
  std::vector<float> drawn = scores(1, 0);
  float sum = 0;
  for (float score : drawn) {
    EXPECT_GE(score, 0);
    EXPECT_LT(score, 1);
    sum += score;
  }
  EXPECT_NEAR(sum / 1024, 0.5, 4 * 0.289 / 32);
}

}  // namespace
}  // namespace lkv
