#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_prefill.h"

namespace lkv {
namespace {

std::vector<Attention> AllAttentions() {
  std::vector<Attention> all;
  for (const KernelTable* set : AllSets()) {
    AddAttentions(set->name, set->attend_prefill, set->attend_prefill_bf16,
                  &all);
  }
  return all;
}

Prompt<TestLane> PromptOf(KvType type, uint32_t head_dim, uint32_t n_tokens,
                          uint32_t group, Random* random) {
  return {TestLane(type, head_dim, n_tokens, random), n_tokens, group, random};
}

TEST(AttendPrefillTest, EveryKernelAgreesWithDoublePrecisionForEveryShape) {
  Random random(1);
  for (uint32_t head_dim : {16, 64, 80, 96, 128, 256}) {
    for (KvType type : kAllKvTypes) {
      for (uint32_t group : {1, 2, 3, 5, 8, 9}) {
        Prompt prompt = PromptOf(type, head_dim, 41, group, &random);
        for (const Attention& attention : AllAttentions()) {
          ExpectExact(attention, prompt, 0, 41, {0, 7, 40});
        }
      }
    }
  }
}

TEST(AttendPrefillTest, EveryKernelAgreesAcrossChunkBorders) {
  Random random(2);
  for (KvType type : kAllKvTypes) {
    Prompt prompt = PromptOf(type, 64, 530, 3, &random);
    for (const Attention& attention : AllAttentions()) {
      ExpectExact(attention, prompt, 230, 275, {0, 8, 16, 24, 32, 44});
      ExpectExact(attention, prompt, 500, 530, {0, 11, 12, 13, 29});
      ExpectExact(attention, prompt, 529, 530, {0});
      ExpectExact(attention, prompt, 255, 257, {});
    }
  }
}

TEST(AttendPrefillTest, NaNBehindTheEndIsNotSeen) {
  Random random(3);
  for (const Attention& attention : AllAttentions()) {
    for (KvType type : kAllKvTypes) {
      Prompt prompt = PromptOf(type, 64, 37, 3, &random);
      prompt.lane.PoisonFrom(37);
      ExpectExact(attention, prompt, 0, 37, {36});
    }
  }
}

// Strict mode: the same slots, cut in any way, give the same bits.
TEST(AttendPrefillTest, ResultsDoNotDependOnHowThePromptIsCut) {
  Random random(4);
  Prompt prompt = PromptOf(KvType::kF16, 64, 300, 3, &random);
  for (const Attention& attention : AllAttentions()) {
    Prefilled whole(attention, prompt, 0, 300, {});
    for (uint32_t chunk : {1, 7, 64, 256, 299}) {
      for (uint32_t first = 0; first < 300; first += chunk) {
        uint32_t last = std::min(first + chunk, 300u);
        Prefilled part(attention, prompt, first, last, {});
        auto expect_equal = [&](const std::vector<float>& of_part,
                                const std::vector<float>& of_whole,
                                size_t row) {
          for (size_t i = 0; i < of_part.size(); ++i) {
            ASSERT_EQ(of_part[i], of_whole[first * row + i])
                << attention.name << " chunk " << chunk << " first " << first;
          }
        };
        expect_equal(part.out, whole.out, prompt.row());
        expect_equal(part.m, whole.m, prompt.group);
        expect_equal(part.l, whole.l, prompt.group);
      }
    }
  }
}

TEST(AttendPrefillTest, ObservingAQueryDoesNotChangeIt) {
  Random random(5);
  Prompt prompt = PromptOf(KvType::kF16, 64, 290, 2, &random);
  for (const Attention& attention : AllAttentions()) {
    Prefilled without(attention, prompt, 200, 290, {});
    Prefilled with(attention, prompt, 200, 290, {3, 57, 89});
    EXPECT_EQ(with.out, without.out) << attention.name;
    EXPECT_EQ(with.l, without.l) << attention.name;
  }
}

}  // namespace
}  // namespace lkv
