#include "cache/expected_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "base/check.h"
#include "cache/paged_kv_cache.h"
#include "cache/testing_options.h"
#include "kernels/kernel_table.h"
#include "testing/cache_driver.h"

namespace lkv {
namespace {

constexpr KvShape kOneLayer{
    .n_layers = 1, .n_kv_heads = 2, .group = 2, .head_dim = 32};
constexpr uint32_t kLane = 1;
constexpr uint32_t kSinks = 4;

// Turns all of a head but its last 8 elements.
Rotation SomeRotation(RopeOrder order) {
  Rotation rotation{.order = order};
  for (int i = 0; i < 12; ++i) {
    rotation.frequencies.push_back(std::pow(1000.0, -i / 12.0));
  }
  return rotation;
}

using Row = std::vector<double>;

Row Turned(const Rotation& rotation, double position, Row row) {
  const size_t n = rotation.frequencies.size();
  const bool halves = rotation.order == RopeOrder::kNeox;
  for (size_t i = 0; i < n; ++i) {
    double& a = row[halves ? i : 2 * i];
    double& b = row[halves ? i + n : 2 * i + 1];
    const double cosine = std::cos(rotation.frequencies[i] * position);
    const double sine = std::sin(rotation.frequencies[i] * position);
    const double turned_a = a * cosine - b * sine;
    b = a * sine + b * cosine;
    a = turned_a;
  }
  return row;
}

// A text of random keys, and queries [n_tokens][group] that have a direction of
// their own.
struct Text {
  std::vector<Row> keys;
  std::vector<std::vector<Row>> queries;  // before they are turned

  explicit Text(uint32_t n_tokens) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    const auto draw = [&](double mean) {
      Row row(kOneLayer.head_dim);
      for (double& x : row) x = mean + normal(random);
      return row;
    };
    for (uint32_t i = 0; i < n_tokens; ++i) {
      keys.push_back(draw(0));
      queries.push_back({draw(0.7), draw(-0.4)});
    }
  }
};

std::vector<float> AsFloats(const Row& row) { return {row.begin(), row.end()}; }

// The definition, in double precision: mean and covariance of the queries from
// the first sink on, each turn of the future added up.
std::vector<double> ExactExpectation(const Text& text, const Rotation& rotation,
                                     uint32_t every) {
  const size_t n = text.keys.size();
  const uint32_t d = kOneLayer.head_dim;
  std::vector<double> attention(n);
  for (uint32_t head = 0; head < kOneLayer.group; ++head) {
    std::vector<const Row*> seen;
    for (size_t pos = 0; pos < n; ++pos) {
      if (pos >= kSinks && pos % every == every - 1) {
        seen.push_back(&text.queries[pos][head]);
      }
    }
    const double share = 1.0 / static_cast<double>(seen.size());
    Row mean(d);
    for (const Row* q : seen) {
      for (uint32_t i = 0; i < d; ++i) mean[i] += share * (*q)[i];
    }
    std::vector<double> logits(n);
    for (size_t slot = 0; slot < n; ++slot) {
      // k R q = (R' k) q, the mean over all turns.
      Row key(d);
      for (uint32_t j = 0; j < ExpectedAttention::kHorizonTokens; ++j) {
        const double position = -static_cast<double>(n + j);
        const Row turned = Turned(rotation, position, text.keys[slot]);
        for (uint32_t i = 0; i < d; ++i) {
          key[i] += turned[i] / ExpectedAttention::kHorizonTokens;
        }
      }
      double product = 0, variance = 0;
      for (uint32_t i = 0; i < d; ++i) product += key[i] * mean[i];
      for (const Row* q : seen) {
        double off = 0;
        for (uint32_t i = 0; i < d; ++i) off += key[i] * ((*q)[i] - mean[i]);
        variance += share * off * off;
      }
      logits[slot] = product / std::sqrt(d) + variance / (2.0 * d);
    }
    double sum = 0;
    for (size_t i = kSinks; i < n; ++i) sum += std::exp(logits[i]);
    for (size_t i = kSinks; i < n; ++i) {
      attention[i] += std::exp(logits[i]) / sum / kOneLayer.group;
    }
  }
  return attention;
}

// The text's keys in pages of a type.
SequencePages PagesOf(const Text& text, KvType type) {
  const auto n_tokens = static_cast<uint32_t>(text.keys.size());
  const uint32_t n_pages = lkv::PagesOf(n_tokens);
  Result<SequencePages> pages = SequencePages::Create(
      kOneLayer, {.type = type,
                  .n_exact_pages = type == KvType::kInt8 ? 1u : 0u,
                  .capacity_pages = n_pages * kOneLayer.n_lanes(),
                  .capacity_pages_max = n_pages * kOneLayer.n_lanes(),
                  .pages_per_lane = n_pages});
  CHECK(pages.ok());
  pages->Extend(0, n_tokens);
  const std::vector<float> value(kOneLayer.head_dim, 1.0f);
  for (uint32_t pos = 0; pos < n_tokens; ++pos) {
    const std::vector<float> key = AsFloats(text.keys[pos]);
    pages->Write(*SelectKernels(nullptr), kLane, pos, key.data(), value.data());
  }
  return *std::move(pages);
}

// What is expected of the text when one query in `every` was observed.
std::vector<float> Expectation(const Text& text, const Rotation& rotation,
                               KvType type, uint32_t every) {
  const auto n_tokens = static_cast<uint32_t>(text.keys.size());
  ExpectedAttention expected(kOneLayer, rotation, kSinks);
  for (uint32_t pos = every - 1; pos < n_tokens; pos += every) {
    std::vector<float> q;
    for (const Row& head : text.queries[pos]) {
      const std::vector<float> row = AsFloats(Turned(rotation, pos, head));
      q.insert(q.end(), row.begin(), row.end());
    }
    expected.Observe(kLane, pos, q.data(), every);
  }
  std::vector<float> attention(n_tokens), logits(n_tokens);
  expected.Compute(kLane, n_tokens, PagesOf(text, type), attention, logits);
  return attention;
}

TEST(ExpectedAttentionTest, IsTheDefinitionForEveryWayOfTurningPairs) {
  const Text text(75);
  for (RopeOrder order : {RopeOrder::kNormal, RopeOrder::kNeox}) {
    const Rotation rotation = SomeRotation(order);
    for (uint32_t every : {1u, 8u}) {
      const std::vector<double> exact = ExactExpectation(text, rotation, every);
      const std::vector<float> attention =
          Expectation(text, rotation, KvType::kF16, every);
      for (size_t i = 0; i < exact.size(); ++i) {
        // Keys are rounded to 11 bits.
        EXPECT_NEAR(attention[i], exact[i], 0.002 * exact[i] + 1e-6)
            << i << ", one query in " << every;
      }
    }
  }
}

// In every type, of keys that are stored less an offset, too.
TEST(ExpectedAttentionTest, ReadsKeysOfEveryType) {
  const Text text(75);
  const Rotation rotation = SomeRotation(RopeOrder::kNeox);
  const std::vector<double> exact = ExactExpectation(text, rotation, 1);
  for (KvType type : {KvType::kBF16, KvType::kInt8}) {
    const std::vector<float> attention = Expectation(text, rotation, type, 1);
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_NEAR(attention[i], exact[i], 0.03 * exact[i] + 1e-6) << i;
    }
  }
}

TEST(ExpectedAttentionTest, ExpectsNothingBeforeAQueryWasSeen) {
  // One query in 100 is none of 20 tokens.
  EXPECT_EQ(Expectation(Text(20), {}, KvType::kF16, 100),
            std::vector<float>(20));
}

TEST(ExpectedAttentionTest, ExpectsNothingOfSinks) {
  const std::vector<float> attention =
      Expectation(Text(20), {}, KvType::kF16, 1);
  for (uint32_t i = 0; i < 20; ++i) EXPECT_EQ(attention[i] > 0, i >= kSinks);
}

// The text is longer than what a lane of them holds.
TEST(ExpectedAttentionTest, ALaneOfSinksAloneHasNoExpectation) {
  ExpectedAttention expected(kOneLayer, {}, kSinks);
  const std::vector<float> q(kOneLayer.group * kOneLayer.head_dim, 1.0f);
  for (uint32_t pos = 0; pos < 20; ++pos)
    expected.Observe(kLane, pos, q.data(), 1);
  const SequencePages pages = PagesOf(Text(kSinks), KvType::kF16);
  std::vector<float> attention(kSinks, 1.0f), logits(kSinks);
  expected.Compute(kLane, 20, pages, attention, logits);
  EXPECT_EQ(attention, std::vector<float>(kSinks));
}

// Half floats end at 65,504: such a key is infinite in its page.
TEST(ExpectedAttentionTest, AKeyThatOverflowedLeavesNoNumberThatIsNone) {
  Text text(40);
  text.keys[20][3] = 1e6;
  for (float mass : Expectation(text, {}, KvType::kF16, 1)) {
    EXPECT_TRUE(std::isfinite(mass));
  }
}

// What a cache tells a policy that wants expectations.
class Listener final : public EvictionPolicy {
 public:
  struct Told {
    uint32_t n_slots;
    double sum;
  };
  explicit Listener(std::vector<Told>& told) : told_(told) {}

  std::string_view name() const override { return "listener"; }
  std::unique_ptr<EvictionPolicy> Clone() const override { return nullptr; }
  size_t bytes_per_page() const override { return 0; }
  void AddPage(uint32_t, uint32_t) override {}
  void AddSlots(uint32_t, uint32_t, const float*, const float*) override {}
  void Observe(const LaneObservation&) override {}
  bool wants_expectation() const override { return true; }
  void ObserveExpectation(uint32_t lane,
                          std::span<const float> attention) override {
    if (lane != kLane) return;
    double sum = 0;
    for (float mass : attention) sum += mass;
    told_.push_back({static_cast<uint32_t>(attention.size()), sum});
  }
  void ScoreSlots(uint32_t, uint32_t, const SlotScores&) const override {}
  void MoveSlots(uint32_t, const SlotMoves&) override {}
  void RemovePage(uint32_t, uint32_t) override {}

 private:
  std::vector<Told>& told_;
};

TEST(ExpectedAttentionTest, ACacheTellsItAtChunksAndEverySixtyFourTokens) {
  std::vector<Listener::Told> told;
  SequenceOptions options;
  options.prompt_tokens = 90;
  options.max_new_tokens = 110;
  options.make_policy = [&](const PolicyCapacity&) {
    return std::make_unique<Listener>(told);
  };
  PagedKvCache cache(kOneLayer, Threads(2));
  CacheDriver drive(cache, 2);
  DrivenSequence sequence = drive.Add(options, 1);
  drive.Step(sequence, 50);
  drive.Step(sequence, 40);
  for (int i = 0; i < 110; ++i) drive.Step(sequence, 1);
  std::vector<uint32_t> n_slots;
  for (const Listener::Told& one : told) {
    n_slots.push_back(one.n_slots);
    EXPECT_NEAR(one.sum, 1, 1e-4);
  }
  EXPECT_EQ(n_slots, (std::vector<uint32_t>{50, 90, 128, 192}));
}

// What queries look for stays, what they do not look for leaves.
TEST(ExpectedAttentionTest, ThePolicyKeepsWhatQueriesPointAt) {
  SequenceOptions options =
      Small(PolicyName::kExpectedAttention,
            {.kind = Budget::Kind::kTokens, .amount = 320});
  options.cache.unit = EvictionUnit::kRepack;
  options.cache.kv_type = KvTypeName::kF16;
  PagedKvCache cache(kOneLayer, Threads(1));
  const Result<SequenceId> id = cache.AddSequence(options);
  ASSERT_TRUE(id.ok()) << id.status().message();
  // Queries are all (1, 1, ...); so is the key of every 16th token, those of
  // others point the other way.
  const std::vector<float> q(size_t{kOneLayer.n_heads()} * kOneLayer.head_dim,
                             1.0f);
  const size_t kv_row = size_t{kOneLayer.n_kv_heads} * kOneLayer.head_dim;
  std::vector<float> out(q.size());
  ThreadTeam team(1);
  for (uint32_t pos = 0; pos < 600; ++pos) {
    const std::vector<float> k(kv_row, pos % 16 == 5 ? 1.0f : -1.0f);
    const std::vector<float> v(kv_row, 1.0f);
    const StepEntry entry{*id, 1};
    ASSERT_TRUE(cache.BeginStep({&entry, 1}).ok());
    team.Run([&](TeamMember& me) {
      AppendHeads(me, cache, 0, {k.data(), kv_row}, {v.data(), kv_row});
      cache.Attend(me, 0, {q.data(), q.size()}, out.data(), out.size());
      cache.EndStep(me);
    });
  }
  const std::vector<uint32_t> held = cache.ResidentPositions(*id, 0, 0);
  ASSERT_LT(held.size(), 400u);
  for (uint32_t pos = 5; pos < 600; pos += 16) {
    EXPECT_TRUE(std::binary_search(held.begin(), held.end(), pos)) << pos;
  }
}

}  // namespace
}  // namespace lkv
