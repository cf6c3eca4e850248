// Sequences that leave the cache and come back, into another one.
#include "cache/sequence_image.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cache/paged_kv_cache.h"
#include "cache/testing_cases.h"
#include "cache/testing_options.h"
#include "policy/lane_pages.h"
#include "testing/cache_driver.h"

namespace lkv {
namespace {

struct Image {
  std::vector<uint8_t> state;
  SequenceLayout layout{kCaseShape.n_lanes()};
  std::vector<ImagePiece> pieces;
  std::vector<std::vector<uint8_t>> payload;
};

Image Save(PagedKvCache& cache, SequenceId id) {
  Image image;
  image.state = cache.SaveState(id);
  image.layout = cache.Layout(id);
  image.pieces = PiecesOf(kCaseShape, image.layout);
  for (const ImagePiece& piece : image.pieces) {
    image.payload.emplace_back(piece.n_bytes);
    cache.CopyPiece(id, piece, image.payload.back());
  }
  return image;
}

void Fill(PagedKvCache& cache, SequenceId id, const Image& image) {
  for (size_t i = 0; i < image.pieces.size(); ++i) {
    cache.FillPiece(id, image.layout, image.pieces[i], image.payload[i]);
  }
  cache.FinishRestoring(id);
}

std::vector<std::vector<std::vector<float>>> GoOn(CacheDriver& drive,
                                                  DrivenSequence& sequence) {
  std::vector<std::vector<std::vector<float>>> outputs;
  for (uint32_t step = 0; step < 60; ++step) {
    if (step == 20) sequence.seed += 10;  // the text turns
    outputs.push_back(drive.Step(sequence, step % 9 == 8 ? 20 : 1));
    EXPECT_FALSE(outputs.back().empty()) << drive.status.message();
  }
  return outputs;
}

class SequenceImageTest : public testing::TestWithParam<Case> {};

TEST_P(SequenceImageTest, GoesOnElsewhereAsIfItHadStayed) {
  const Case& test = GetParam();
  PagedKvCache first(kCaseShape, Threads(2));
  CacheDriver drive(first, 2);
  drive.query_scale = 3;
  DrivenSequence stays = drive.Add(test.options, 1);
  drive.Prefill(stays, test.common_tokens, 64);
  // Plans are under way in the middle of a decode.
  for (uint32_t i = 0; i < 5; ++i) drive.Step(stays, 1);
  const Image image = Save(first, stays.id);

  PagedKvCache second(kCaseShape, Threads(2));
  CacheDriver drive_second(second, 2);
  drive_second.query_scale = 3;
  // Its lengths, budget and pinned ranges are those that were saved.
  SequenceOptions options = test.options;
  options.prompt_tokens = 1;
  options.max_new_tokens = 0;
  options.max_tokens = test.options.prompt_tokens + test.options.max_new_tokens;
  options.pinned.clear();
  const Result<SequenceId> id = second.RestoreSequence(options, image.state);
  ASSERT_TRUE(id.ok()) << id.status().message();
  Fill(second, *id, image);
  DrivenSequence moved{*id, 1, stays.n_tokens};
  EXPECT_EQ(Residents(second, moved.id), Residents(first, stays.id));
  const SequenceStats before = first.Stats(stays.id);
  const SequenceStats after = second.Stats(moved.id);
  EXPECT_EQ(after.n_tokens, before.n_tokens);
  EXPECT_EQ(after.budget_bytes, before.budget_bytes);
  EXPECT_EQ(after.resident_bytes, before.resident_bytes);
  EXPECT_EQ(after.resident_bytes_max, before.resident_bytes_max);
  EXPECT_EQ(after.evicted_tokens, before.evicted_tokens);

  EXPECT_TRUE(GoOn(drive, stays) == GoOn(drive_second, moved));
  EXPECT_TRUE(first.SaveState(stays.id) == second.SaveState(moved.id));
  const SequenceStats end = first.Stats(stays.id);
  const SequenceStats end_moved = second.Stats(moved.id);
  EXPECT_EQ(end_moved.window_tokens, end.window_tokens);
  EXPECT_EQ(end_moved.pattern_change, end.pattern_change);
  EXPECT_EQ(end_moved.evicted_tokens, end.evicted_tokens);
  EXPECT_EQ(Residents(second, moved.id), Residents(first, stays.id));
}

// The same sequence again: the state is all of its state.
TEST_P(SequenceImageTest, IsTheSameAfterItHasComeBack) {
  const Case& test = GetParam();
  PagedKvCache cache(kCaseShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence sequence = drive.Add(test.options, 1);
  drive.Prefill(sequence, test.common_tokens, 64);
  const Image image = Save(cache, sequence.id);
  const Result<SequenceId> id =
      cache.RestoreSequence(test.options, image.state);
  ASSERT_TRUE(id.ok()) << id.status().message();
  Fill(cache, *id, image);
  const Image again = Save(cache, *id);
  EXPECT_TRUE(again.state == image.state);
  EXPECT_TRUE(again.payload == image.payload);
}

// What is taken does no harm: no step ends the process.
TEST_P(SequenceImageTest, ADamagedStateIsRefusedOrHarmless) {
  const Case& test = GetParam();
  PagedKvCache cache(kCaseShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence sequence = drive.Add(test.options, 1);
  drive.Prefill(sequence, test.common_tokens, 64);
  const Image image = Save(cache, sequence.id);
  const std::vector<uint8_t>& state = image.state;
  for (size_t n = 0; n < state.size(); n += 1 + state.size() / 50) {
    EXPECT_FALSE(
        cache.RestoreSequence(test.options, std::span(state).first(n)).ok());
  }
  uint32_t n_taken = 0;
  for (size_t i = 0; i < state.size(); i += 1 + state.size() / 200) {
    std::vector<uint8_t> damaged = state;
    damaged[i] ^= i % 2 == 0 ? 0xff : 0x01;
    const auto id = cache.RestoreSequence(test.options, damaged);
    if (!id.ok()) continue;
    // The pieces are those of the sound layout, so of the same sizes.
    Fill(cache, *id, image);
    DrivenSequence taken{*id, 1, cache.Stats(*id).n_tokens};
    if (++n_taken % 4 == 0) {
      for (uint32_t step = 0; step < 20; ++step) {
        if (drive.Step(taken, 1).empty()) break;
      }
    }
    cache.RemoveSequence(*id);
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases = Cases();
  for (const auto& [name, policy] : {std::pair{"ema", PolicyName::kEma},
                                     {"lfu", PolicyName::kLfu},
                                     {"fifo", PolicyName::kFifo},
                                     {"streaming", PolicyName::kStreaming},
                                     {"h2o", PolicyName::kH2o},
                                     {"observed", PolicyName::kObserved},
                                     {"tova", PolicyName::kTova},
                                     {"random", PolicyName::kRandom}}) {
    cases.push_back({name, Options(policy, 300), 600});
  }
  // The window moves, and has to wait for it.
  Case dwell{"dwell", Options(PolicyName::kLookahead, 700), 600};
  dwell.options.cache.base_window_tokens = 300;
  dwell.options.cache.min_window_tokens = 64;
  dwell.options.cache.change_threshold = 0.02;
  dwell.options.cache.dwell_steps = 64;
  cases.push_back(dwell);
  // The threshold alone evicts.
  Case threshold{"threshold_alone", Options(PolicyName::kLookahead, 900), 600};
  threshold.options.cache.eviction_rule = EvictionRule::kScoreThreshold;
  threshold.options.cache.warmup_tokens = 500;
  threshold.options.cache.min_window_tokens = 200;
  threshold.options.cache.base_window_tokens = 1000;
  cases.push_back(threshold);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, SequenceImageTest,
                         testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.name; });

// ---- beginnings -----------------------------------------------------------

struct Beginning {
  std::string name;
  SequenceOptions saved, wanted;
};

class BeginningTest : public testing::TestWithParam<Beginning> {};

TEST_P(BeginningTest, HoldsWhatReadingItWouldHaveGiven) {
  const Beginning& test = GetParam();
  PagedKvCache first(kCaseShape, Threads(1));
  CacheDriver drive(first, 1);
  DrivenSequence longer = drive.Add(test.saved, 1);
  drive.Prefill(longer, 650, 64);
  const Image image = Save(first, longer.id);
  ASSERT_EQ(image.layout.complete_tokens, 650u);
  for (const uint32_t n_tokens : {640u, 333u, 16u, 15u}) {
    PagedKvCache read(kCaseShape, Threads(1));
    CacheDriver drive_read(read, 1);
    DrivenSequence reader = drive_read.Add(test.wanted, 1);
    drive_read.Prefill(reader, n_tokens, 64);

    PagedKvCache restored(kCaseShape, Threads(1));
    CacheDriver drive_restored(restored, 1);
    const auto id =
        restored.RestoreBeginning(test.wanted, image.layout, n_tokens);
    ASSERT_TRUE(id.ok()) << id.status().message();
    Fill(restored, *id, image);
    DrivenSequence copy{*id, 1, n_tokens};
    EXPECT_EQ(Residents(restored, copy.id), Residents(read, reader.id));
    EXPECT_EQ(restored.Stats(copy.id).resident_bytes,
              read.Stats(reader.id).resident_bytes);
    // Another text follows.
    copy.seed = reader.seed = 2;
    EXPECT_TRUE(GoOn(drive_restored, copy) == GoOn(drive_read, reader))
        << n_tokens;
  }
}

std::vector<Beginning> Beginnings() {
  const SequenceOptions full = Options(PolicyName::kFull, 0);
  const SequenceOptions lookahead = Small(PolicyName::kLookahead, {});
  SequenceOptions full_int8 = full;
  full_int8.cache.kv_type = KvTypeName::kInt8;
  SequenceOptions lookahead_int8 = lookahead;
  lookahead_int8.cache.kv_type = KvTypeName::kInt8;
  // Copies are made of the pages that came back.
  SequenceOptions tiers = Options(PolicyName::kLookahead, 550);
  tiers.cache.recent_tokens = 128;
  tiers.cache.tiers = true;
  tiers.cache.budget = {.kind = Budget::Kind::kTokens, .amount = 3000};
  tiers.max_tokens = 2000;
  return {{"full_for_full", full, full},
          {"full_for_tiers", full, tiers},
          {"full_for_lookahead", full, lookahead},
          {"lookahead_for_full", lookahead, full},
          {"int8", full_int8, lookahead_int8}};
}

INSTANTIATE_TEST_SUITE_P(Cases, BeginningTest, testing::ValuesIn(Beginnings()),
                         [](const auto& info) { return info.param.name; });

TEST(SequenceImage, SaysHowMuchOfTheBeginningIsThere) {
  PagedKvCache cache(kCaseShape, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Options(PolicyName::kStreaming, 300);
  DrivenSequence sequence = drive.Add(options, 1);
  drive.Prefill(sequence, 100, 64);
  EXPECT_EQ(cache.Layout(sequence.id).complete_tokens, 100u);
  drive.Prefill(sequence, 500, 64);
  // Its sinks' page stays.
  EXPECT_EQ(cache.Layout(sequence.id).complete_tokens, kPageTokens);
}

// The layout of a sequence of 100 tokens.
SequenceLayout LayoutOf(const SequenceOptions& options) {
  PagedKvCache cache(kCaseShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence sequence = drive.Add(options, 1);
  drive.Prefill(sequence, 100, 64);
  return cache.Layout(sequence.id);
}

TEST(SequenceImage, ABudgetThatMustEvictTakesNoBeginning) {
  PagedKvCache cache(kCaseShape, Threads(1));
  const auto id =
      cache.RestoreBeginning(Options(PolicyName::kLookahead, 300),
                             LayoutOf(Options(PolicyName::kFull, 0)), 100);
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(id.status().message().find("budget"), std::string::npos);
}

TEST(SequenceImage, PagesOfAnotherKindAreNoBeginning) {
  SequenceOptions f16 = Options(PolicyName::kFull, 0);
  SequenceOptions int8 = f16, more_sinks = f16;
  int8.cache.kv_type = more_sinks.cache.kv_type = KvTypeName::kInt8;
  more_sinks.cache.sink_tokens = 64;  // more pages of each lane are f16
  PagedKvCache cache(kCaseShape, Threads(1));
  for (const SequenceOptions* saved : {&f16, &int8, &more_sinks}) {
    for (const SequenceOptions* wanted : {&f16, &int8, &more_sinks}) {
      const auto id = cache.RestoreBeginning(*wanted, LayoutOf(*saved), 100);
      EXPECT_EQ(id.ok(), saved == wanted);
      if (id.ok()) cache.RemoveSequence(*id);
    }
  }
}

// Its state cannot leave the process.
class Homebound final : public EvictionPolicy {
 public:
  explicit Homebound(const PolicyCapacity& capacity) : pages_(capacity) {}
  std::string_view name() const override { return "homebound"; }
  std::unique_ptr<EvictionPolicy> Clone() const override {
    return std::make_unique<Homebound>(*this);
  }
  size_t bytes_per_page() const override { return 0; }
  void AddPage(uint32_t lane, uint32_t first_pos) override {
    pages_.AddPage(lane, first_pos);
  }
  void AddSlots(uint32_t lane, uint32_t n, const float*,
                const float*) override {
    pages_.AddSlots(lane, n);
  }
  void Observe(const LaneObservation&) override {}
  void ScoreSlots(uint32_t, uint32_t, const SlotScores& out) const override {
    for (size_t i = 0; i < out.score.size(); ++i) {
      out.score[i] = out.attention[i] = static_cast<float>(i);
    }
  }
  void MoveSlots(uint32_t, const SlotMoves&) override {}
  void RemovePage(uint32_t lane, uint32_t index) override {
    pages_.RemovePage(lane, index);
  }

 private:
  LanePages pages_;
};

TEST(SequenceImage, SavingChangesNothingThoughThePolicyCannotLeave) {
  SequenceOptions options = Options(PolicyName::kLookahead, 400);
  options.cache.base_window_tokens = 160;
  options.make_policy = [](const PolicyCapacity& capacity) {
    return std::make_unique<Homebound>(capacity);
  };
  std::vector<std::vector<std::vector<float>>> outputs[2];
  for (const bool saves : {false, true}) {
    PagedKvCache cache(kCaseShape, Threads(1));
    CacheDriver drive(cache, 1);
    DrivenSequence sequence = drive.Add(options, 1);
    drive.Prefill(sequence, 600, 64);
    if (saves) {
      const std::vector<uint8_t> state = cache.SaveState(sequence.id);
      const auto head = ReadImageHead(kCaseShape, state);
      ASSERT_TRUE(head.ok());
      EXPECT_FALSE(head->has_rest);
      EXPECT_FALSE(cache.RestoreSequence(options, state).ok());
    }
    outputs[saves] = GoOn(drive, sequence);
  }
  EXPECT_TRUE(outputs[0] == outputs[1]);
}

TEST(SequenceImage, AForkCanBeSaved) {
  const SequenceOptions options = Options(PolicyName::kLookahead, 300);
  PagedKvCache cache(kCaseShape, Threads(1));
  CacheDriver drive(cache, 1);
  DrivenSequence parent = drive.Add(options, 1);
  drive.Prefill(parent, 500, 64);
  const auto fork_id = cache.ForkSequence(parent.id);
  ASSERT_TRUE(fork_id.ok());
  DrivenSequence fork{*fork_id, 2, parent.n_tokens};
  drive.Prefill(parent, 70, 64);
  const Image image = Save(cache, fork.id);
  PagedKvCache second(kCaseShape, Threads(1));
  CacheDriver drive_second(second, 1);
  const auto id = second.RestoreSequence(options, image.state);
  ASSERT_TRUE(id.ok()) << id.status().message();
  Fill(second, *id, image);
  DrivenSequence moved{*id, 2, fork.n_tokens};
  EXPECT_TRUE(GoOn(drive, fork) == GoOn(drive_second, moved));
}

TEST(SequenceImage, PiecesOfLargePlacesHoldOneEach) {
  SequenceLayout layout(kCaseShape.n_lanes());
  layout.n_pages = {3, 1, 3, 3, 0, 3};
  const KvShape wide{
      .n_layers = 3, .n_kv_heads = 2, .group = 1, .head_dim = 32768};
  const auto pieces = PiecesOf(wide, layout);
  ASSERT_EQ(pieces.size(), 3u);
  const size_t page = wide.page_bytes(KvType::kF16);
  EXPECT_EQ(pieces[0].n_bytes, 5 * page);
  EXPECT_EQ(pieces[2].n_bytes, 4 * page);
  EXPECT_EQ(pieces[2].first, 2u);
}

}  // namespace
}  // namespace lkv
