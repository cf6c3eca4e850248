#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_cold.h"
#include "kernels/testing_prefill.h"

namespace lkv {
namespace {

// A lane of f16 some of whose groups of four pages are cold.
class MixedLane {
 public:
  MixedLane(uint32_t head_dim, uint32_t n_slots, std::set<uint32_t> cold_groups,
            Random* random)
      : head_dim(head_dim),
        exact_(KvType::kF16, head_dim, n_slots, random),
        groups_(static_cast<uint32_t>(exact_.pages.size()) / kColdGroupPages,
                head_dim, random),
        cold_groups_(std::move(cold_groups)) {}

  const uint32_t head_dim;

  TestLane& exact() { return exact_; }
  static size_t type_index() { return 0; }
  double Key(uint32_t slot, uint32_t d) const {
    return IsCold(slot) ? groups_.Key(slot, d) : exact_.Key(slot, d);
  }
  double Value(uint32_t slot, uint32_t d) const {
    return IsCold(slot) ? groups_.Value(slot, d) : exact_.Value(slot, d);
  }
  PageRun Run(uint32_t n_slots) const {
    PageRun run = exact_.Run(n_slots);
    pages_.assign(run.pages, run.pages + PagesOf(n_slots));
    cold_.assign(pages_.size(), {});
    for (uint32_t i = 0; i < pages_.size(); ++i) {
      if (!IsCold(i * kPageSlots)) continue;
      pages_[i] = nullptr;
      cold_[i] = groups_.Page(i);
    }
    run.pages = pages_.data();
    run.cold = cold_.data();
    return run;
  }

 private:
  bool IsCold(uint32_t slot) const {
    return cold_groups_.contains(slot / kColdGroupSlots);
  }

  TestLane exact_;
  ColdGroups groups_;
  std::set<uint32_t> cold_groups_;
  mutable std::vector<const uint8_t*> pages_;  // set by Run
  mutable std::vector<ColdPage> cold_;
};

std::vector<Attention> AllAttentions() {
  std::vector<Attention> all;
  for (const KernelTable* set : AllSets()) {
    AddAttentions(set->name, &set->attend_prefill_mixed,
                  &set->attend_prefill_mixed_bf16, &all);
  }
  return all;
}

Prompt<MixedLane> PromptOf(uint32_t head_dim, uint32_t n_tokens, uint32_t group,
                           std::set<uint32_t> cold_groups, Random* random) {
  return {MixedLane(head_dim, n_tokens, std::move(cold_groups), random),
          n_tokens, group, random};
}

TEST(AttendPrefillMixedTest, EveryKernelAgreesWithDoublePrecision) {
  Random random(1);
  for (uint32_t head_dim : {16, 48, 64, 80, 96, 128, 256}) {
    for (uint32_t group : {1, 3, 8, 9}) {
      Prompt prompt = PromptOf(head_dim, 150, group, {0}, &random);
      for (const Attention& attention : AllAttentions()) {
        ExpectExact(attention, prompt, 100, 150, {0, 7, 49});
      }
    }
  }
}

TEST(AttendPrefillMixedTest, ColdPagesMayLieAnywhere) {
  Random random(2);
  for (const std::set<uint32_t>& cold :
       {std::set<uint32_t>{0, 1, 2, 3, 4, 5}, {1, 4}, {0, 2, 5}, {3}}) {
    Prompt prompt = PromptOf(64, 450, 3, cold, &random);
    for (const Attention& attention : AllAttentions()) {
      ExpectExact(attention, prompt, 400, 450, {0, 48, 49});
    }
  }
}

// Queries over cold pages alone, as far as they see: whether a page is cold
// does not depend on where a chunk or a view ends.
TEST(AttendPrefillMixedTest, ViewsMayEndInColdPages) {
  Random random(3);
  Prompt prompt = PromptOf(64, 128, 2, {0, 1}, &random);
  for (const Attention& attention : AllAttentions()) {
    ExpectExact(attention, prompt, 0, 128, {0, 63, 64, 127});
  }
}

TEST(AttendPrefillMixedTest, WithoutColdPagesItEqualsF16) {
  Random random(4);
  Prompt prompt = PromptOf(64, 300, 3, {}, &random);
  const Prompt<TestLane> f16 = [&] {
    Prompt<TestLane> same(prompt.lane.exact(), 300, 3, &random);
    same.q = prompt.q;
    return same;
  }();
  for (const KernelTable* set : AllSets()) {
    std::vector<Attention> mixed, exact;
    AddAttentions(set->name, &set->attend_prefill_mixed,
                  &set->attend_prefill_mixed_bf16, &mixed);
    AddAttentions(set->name, set->attend_prefill, set->attend_prefill_bf16,
                  &exact);
    ASSERT_EQ(mixed.size(), exact.size()) << set->name;
    for (size_t i = 0; i < mixed.size(); ++i) {
      const Prefilled got(mixed[i], prompt, 200, 300, {5, 99});
      const Prefilled expected(exact[i], f16, 200, 300, {5, 99});
      EXPECT_EQ(got.out, expected.out) << mixed[i].name;
      EXPECT_EQ(got.m, expected.m) << mixed[i].name;
      EXPECT_EQ(got.l, expected.l) << mixed[i].name;
      EXPECT_EQ(got.p, expected.p) << mixed[i].name;
    }
  }
}

}  // namespace
}  // namespace lkv
