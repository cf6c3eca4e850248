// The scratch of attention goes by the text that is announced, not by the
// longest one allowed.
#include <gtest/gtest.h>

#include "cache/paged_kv_cache.h"
#include "cache/testing_options.h"
#include "testing/cache_driver.h"

namespace lkv {
namespace {

constexpr KvShape kShape{
    .n_layers = 2, .n_kv_heads = 2, .group = 2, .head_dim = 32};

// A text of up to 100 tokens, in a sequence of up to max_tokens.
SequenceOptions Short(PolicyName policy, uint32_t max_tokens) {
  SequenceOptions options;
  options.cache.policy = policy;
  options.cache.budget = {.kind = Budget::Kind::kFull};
  options.cache.recent_tokens = 16;
  options.prompt_tokens = 80;
  options.max_new_tokens = 20;
  options.max_tokens = max_tokens;
  return options;
}

uint64_t ScratchBytes(PolicyName policy, uint32_t max_tokens) {
  PagedKvCache cache(kShape, Threads(1));
  EXPECT_TRUE(cache.AddSequence(Short(policy, max_tokens)).ok());
  return cache.scratch_bytes();
}

TEST(AttentionScratchTest, DoesNotGoByTheLongestTextAllowed) {
  for (PolicyName policy : {PolicyName::kFull, PolicyName::kLookahead}) {
    EXPECT_EQ(ScratchBytes(policy, 1 << 20), ScratchBytes(policy, 100));
  }
}

TEST(AttentionScratchTest, GrowsWhenALongerTurnIsAnnounced) {
  PagedKvCache cache(kShape, Threads(1));
  const Result<SequenceId> id =
      cache.AddSequence(Short(PolicyName::kLookahead, 1 << 20));
  ASSERT_TRUE(id.ok());
  const uint64_t before = cache.scratch_bytes();
  ASSERT_TRUE(cache.AnnounceTurn(*id, 80, 20).ok());
  EXPECT_EQ(cache.scratch_bytes(), before);
  ASSERT_TRUE(cache.AnnounceTurn(*id, 5000, 20).ok());
  EXPECT_GT(cache.scratch_bytes(), before);
}

// Lanes share the pages of the text announced, so one may hold more than its
// part of it once the text is longer. Whoever announces too little gets the
// same results as with scratch for more.
TEST(AttentionScratchTest, ATextBeyondTheAnnouncedOneHasRoom) {
  std::vector<std::vector<float>> last[2];
  for (const bool has_plenty : {false, true}) {
    PagedKvCache cache(kShape, Threads(1));
    CacheDriver drive(cache, 1);
    SequenceOptions other = Short(PolicyName::kLookahead, 0);
    other.prompt_tokens = 3000;
    if (has_plenty) drive.Add(other, 2);
    DrivenSequence text = drive.Add(Short(PolicyName::kLookahead, 3000), 1);
    drive.Step(text, 100);
    const uint64_t before = cache.scratch_bytes();
    for (uint32_t n = 0; n < 300; ++n) {
      last[has_plenty] = drive.Step(text, 1);
      ASSERT_TRUE(drive.status.ok()) << drive.status.message();
    }
    EXPECT_EQ(cache.scratch_bytes() > before, !has_plenty);
  }
  EXPECT_EQ(last[0], last[1]);
}

}  // namespace
}  // namespace lkv
