#include "eval/hit_rate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace lkv {
namespace {

constexpr KvShape kShape{
    .n_layers = 2, .n_kv_heads = 2, .group = 1, .head_dim = 16};
constexpr ProtectedEnds kProtected{.sink_tokens = 2, .recent_tokens = 8};

using Residency = std::vector<std::vector<uint32_t>>;  // [n_lanes]

// Shows one query's masses [n_lanes][query_pos + 1] to the meter.
void Show(HitRateMeter* meter, uint32_t query_pos,
          const std::vector<std::vector<float>>& mass) {
  for (uint32_t layer = 0; layer < kShape.n_layers; ++layer) {
    for (uint32_t head = 0; head < kShape.n_kv_heads; ++head) {
      const std::vector<float>& row = mass[kShape.LaneOf(layer, head)];
      AttentionSample sample;
      sample.layer = layer;
      sample.kv_head = head;
      sample.query_pos = query_pos;
      sample.n_slots = query_pos + 1;
      sample.mass_max = row.data();
      sample.mass_mean = row.data();
      meter->OnAttention(sample);
    }
  }
}

// The definition, word for word, over one stream of samples.
class BruteForce {
 public:
  void Add(uint32_t query_pos, const std::vector<float>& mass,
           const std::vector<uint32_t>& resident_list) {
    const std::set<uint32_t> resident(resident_list.begin(),
                                      resident_list.end());
    std::vector<std::pair<float, uint32_t>> contestable;
    double all = 0, all_hit = 0;
    for (uint32_t i = 0; i <= query_pos; ++i) {
      all += mass[i];
      if (resident.count(i)) all_hit += mass[i];
      const bool sink = i < kProtected.sink_tokens;
      const bool recent = i + kProtected.recent_tokens > query_pos;
      if (!sink && !recent) contestable.push_back({mass[i], i});
    }
    raw_all_ += all;
    raw_hit_ += all_hit;
    double c = 0, hit = 0;
    uint32_t held = 0;
    for (auto [m, i] : contestable) {
      c += m;
      if (resident.count(i)) hit += m, ++held;
    }
    contestable_ += c;
    contestable_hit_ += hit;
    ratios_ += hit / c;
    std::sort(contestable.begin(), contestable.end(), [](auto a, auto b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    double covered = 0;
    uint32_t set_size = 0, set_hit = 0;
    for (auto [m, i] : contestable) {
      if (covered >= 0.9 * c || set_size == std::max(held, 1u)) break;
      covered += m;
      ++set_size;
      if (resident.count(i)) ++set_hit;
    }
    topk_ += static_cast<double>(set_hit) / set_size;
    ++n_;
  }
  double mass() const { return contestable_hit_ / contestable_; }
  double mass_unweighted() const { return ratios_ / n_; }
  double topk() const { return topk_ / n_; }
  double raw() const { return raw_hit_ / raw_all_; }

 private:
  double contestable_ = 0, contestable_hit_ = 0, ratios_ = 0, topk_ = 0;
  double raw_all_ = 0, raw_hit_ = 0;
  uint32_t n_ = 0;
};

std::vector<float> RandomMass(uint32_t n, std::mt19937* random) {
  // Cubed, so that a few tokens carry most of the mass, as in attention.
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> mass(n);
  float sum = 0;
  for (float& m : mass) {
    const float u = uniform(*random);
    m = u * u * u;
    sum += m;
  }
  for (float& m : mass) m /= sum;
  return mass;
}

std::vector<uint32_t> RandomResident(uint32_t n, double share,
                                     std::mt19937* random) {
  std::bernoulli_distribution keep(share);
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < n; ++i) {
    const bool kept = i < kProtected.sink_tokens ||
                      i + kProtected.recent_tokens >= n || keep(*random);
    if (kept) positions.push_back(i);
  }
  return positions;
}

TEST(HitRateTest, EqualsTheDefinitionOnRandomStreams) {
  std::mt19937 random(7);
  ResidencyLog logs[] = {ResidencyLog(kShape), ResidencyLog(kShape)};
  const double shares[] = {0.25, 0.6};
  BruteForce expected[2];
  std::vector<std::pair<uint32_t, std::vector<std::vector<float>>>> stream;
  for (uint32_t query_pos = 40; query_pos < 340; query_pos += 3) {
    std::vector<std::vector<float>> mass;
    for (uint32_t lane = 0; lane < kShape.n_lanes(); ++lane) {
      mass.push_back(RandomMass(query_pos + 1, &random));
    }
    // Only every other step is sampled; the rest must not count.
    for (int i = 0; i < 2 && query_pos % 2 == 0; ++i) {
      Residency resident;
      for (uint32_t lane = 0; lane < kShape.n_lanes(); ++lane) {
        resident.push_back(RandomResident(query_pos + 1, shares[i], &random));
        expected[i].Add(query_pos, mass[lane], resident[lane]);
      }
      logs[i].Record(query_pos, resident);
    }
    stream.push_back({query_pos, std::move(mass)});
  }
  const ResidencyLog* const pointers[] = {&logs[0], &logs[1]};
  HitRateMeter meter(kShape, kProtected, pointers);
  for (const auto& [query_pos, mass] : stream) Show(&meter, query_pos, mass);
  for (int i = 0; i < 2; ++i) {
    const HitRates rates = meter.Rates(i);
    EXPECT_EQ(rates.sampled_steps, 50u);
    EXPECT_NEAR(rates.mass, expected[i].mass(), 1e-9);
    EXPECT_NEAR(rates.mass_unweighted, expected[i].mass_unweighted(), 1e-9);
    EXPECT_NEAR(rates.topk, expected[i].topk(), 1e-9);
    EXPECT_NEAR(rates.raw, expected[i].raw(), 1e-9);
  }
  EXPECT_GT(meter.Rates(1).mass, meter.Rates(0).mass);
}

// One query at position 12 whose contestable tokens are 2, 3 and 4.
HitRates RatesOf(const std::vector<uint32_t>& resident_contestable, float mass2,
                 float mass3, float mass4) {
  std::vector<float> mass(13, 0.02f);
  mass[2] = mass2;
  mass[3] = mass3;
  mass[4] = mass4;
  std::vector<uint32_t> resident = {0, 1};
  resident.insert(resident.end(), resident_contestable.begin(),
                  resident_contestable.end());
  for (uint32_t i = 5; i <= 12; ++i) resident.push_back(i);
  ResidencyLog log(kShape);
  log.Record(12, Residency(kShape.n_lanes(), resident));
  const ResidencyLog* const pointers[] = {&log};
  HitRateMeter meter(kShape, kProtected, pointers);
  Show(&meter, 12, std::vector<std::vector<float>>(kShape.n_lanes(), mass));
  return meter.Rates(0);
}

TEST(HitRateTest, SinksAndRecentTokensEarnNoHit) {
  const HitRates rates = RatesOf({}, 0.4f, 0.3f, 0.1f);
  EXPECT_EQ(rates.mass, 0);
  EXPECT_EQ(rates.topk, 0);
  EXPECT_NEAR(rates.raw, 0.2, 1e-6);
}

TEST(HitRateTest, TopkCoversNinetyPercentAndNoMoreThanWasHeld) {
  // 0.5 + 0.4 covers 0.9 of 1.0: the set is {2, 3}.
  EXPECT_NEAR(RatesOf({2, 4}, 0.5f, 0.41f, 0.09f).topk, 0.5, 1e-9);
  EXPECT_NEAR(RatesOf({2, 3}, 0.5f, 0.41f, 0.09f).topk, 1.0, 1e-9);
  // Only one was held: the set is {2}.
  EXPECT_NEAR(RatesOf({2}, 0.5f, 0.41f, 0.09f).topk, 1.0, 1e-9);
  EXPECT_NEAR(RatesOf({3}, 0.5f, 0.41f, 0.09f).topk, 0.0, 1e-9);
}

TEST(HitRateTest, NothingContestableIsAFullHit) {
  ResidencyLog log(kShape);
  log.Record(5, Residency(kShape.n_lanes(), {0, 1, 2, 3, 4, 5}));
  const ResidencyLog* const pointers[] = {&log};
  HitRateMeter meter(kShape, kProtected, pointers);
  Show(&meter, 5,
       std::vector<std::vector<float>>(kShape.n_lanes(),
                                       std::vector<float>(6, 1 / 6.f)));
  EXPECT_EQ(meter.Rates(0).mass, 1);
  EXPECT_EQ(meter.Rates(0).topk, 1);
}

}  // namespace
}  // namespace lkv
