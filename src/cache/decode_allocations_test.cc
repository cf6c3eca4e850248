// A decode step of the paged cache allocates nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "cache/paged_kv_cache.h"
#include "cache/testing_constant_decoder.h"
#include "cache/testing_options.h"
#include "testing/cache_driver.h"

namespace {

std::atomic<uint64_t> allocations{0};

void* CountedAllocate(size_t n, size_t alignment) {
  ++allocations;
  void* p = alignment <= alignof(std::max_align_t)
                ? std::malloc(n)
                : std::aligned_alloc(
                      alignment, (n + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

// Every allocation of the test binary is counted.
void* operator new(size_t n) { return CountedAllocate(n, 1); }
void* operator new[](size_t n) { return CountedAllocate(n, 1); }
void* operator new(size_t n, std::align_val_t alignment) {
  return CountedAllocate(n, static_cast<size_t>(alignment));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace lkv {
namespace {

constexpr KvShape kShape{
    .n_layers = 3, .n_kv_heads = 2, .group = 2, .head_dim = 64};

TEST(DecodeAllocationsTest, DecodeStepsAllocateNothing) {
  PagedKvCache cache(kShape, Threads(2));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Small(
      PolicyName::kLookahead, {.kind = Budget::Kind::kTokens, .amount = 256});
  options.cache.base_window_tokens = 160;
  DrivenSequence sequence = drive.Add(options, 1);
  options.cache.unit = EvictionUnit::kRepack;
  DrivenSequence repacked = drive.Add(options, 3);
  DrivenSequence full = drive.Add(Small(PolicyName::kFull, {}), 2);
  options = Small(PolicyName::kLookahead,
                  {.kind = Budget::Kind::kTokens, .amount = 550});
  options.cache.recent_tokens = 128;
  options.cache.tiers = true;
  DrivenSequence tiered = drive.Add(options, 4);
  drive.Prefill(tiered, 400, 512);
  drive.Prefill(sequence, 400, 512);
  drive.Prefill(repacked, 400, 512);
  drive.Prefill(full, 100, 64);
  ConstantDecoder decoder(cache, 2);
  const StepEntry entries[] = {
      {sequence.id, 1}, {repacked.id, 1}, {full.id, 1}, {tiered.id, 1}};
  const uint64_t before = allocations;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(decoder.Step(entries));
  EXPECT_EQ(allocations, before);
  EXPECT_GT(cache.Stats(sequence.id).evicted_tokens, 300u);
  EXPECT_GT(cache.Stats(tiered.id).evicted_tokens, 100u);
}

TEST(DecodeAllocationsTest, DecodeStepsOfForksAllocateNothing) {
  PagedKvCache cache(kShape, Threads(2));
  CacheDriver drive(cache, 1);
  DrivenSequence parent =
      drive.Add(Small(PolicyName::kLookahead,
                      {.kind = Budget::Kind::kTokens, .amount = 256}),
                1);
  drive.Prefill(parent, 393, 512);
  const Result<SequenceId> fork = cache.ForkSequence(parent.id);
  ASSERT_TRUE(fork.ok()) << fork.status().message();
  ConstantDecoder decoder(cache, 2);
  const StepEntry entries[] = {{parent.id, 1}, {*fork, 1}};
  const uint64_t before = allocations;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(decoder.Step(entries));
  EXPECT_EQ(allocations, before);
}

TEST(DecodeAllocationsTest, StepsAllocateNothingAfterTheBudgetHasGrown) {
  PagedKvCache cache(kShape, Threads(1));
  CacheDriver drive(cache, 1);
  SequenceOptions options = Chat(PolicyName::kLookahead, 2000);
  options.cache.base_window_tokens = 160;
  DrivenSequence chat = drive.Add(options, 1);
  ASSERT_TRUE(cache.AnnounceTurn(chat.id, 100, 10).ok());
  drive.Prefill(chat, 100, 512);
  ASSERT_TRUE(cache.AnnounceTurn(chat.id, 1, 1500).ok());
  ConstantDecoder decoder(cache, 1);
  const StepEntry entries[] = {{chat.id, 1}};
  const uint64_t before = allocations;
  for (int i = 0; i < 600; ++i) ASSERT_TRUE(decoder.Step(entries));
  EXPECT_EQ(allocations, before);
  EXPECT_GT(cache.Stats(chat.id).evicted_tokens, 200u);
}

}  // namespace
}  // namespace lkv
