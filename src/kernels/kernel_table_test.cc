#include "kernels/kernel_table.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/testing_sets.h"

namespace lkv {
namespace {

TEST(SelectKernelsTest, WithoutANameGivesTheBestSet) {
  EXPECT_STREQ(SelectKernels(nullptr)->name, AvailableKernels()[0]);
  EXPECT_EQ(SelectKernels(""), SelectKernels(nullptr));
}

TEST(SelectKernelsTest, EveryAvailableNameGivesThatSet) {
  for (const char* const* name = AvailableKernels(); *name != nullptr; ++name) {
    ASSERT_NE(SelectKernels(*name), nullptr) << *name;
    EXPECT_STREQ(SelectKernels(*name)->name, *name);
  }
}

TEST(SelectKernelsTest, AnUnknownNameGivesNothing) {
  EXPECT_EQ(SelectKernels("sse9"), nullptr);
  EXPECT_EQ(SelectKernels("avx"), nullptr);
}

TEST(AvailableKernelsTest, EndsWithTheScalarSet) {
  std::string last;
  for (const char* const* name = AvailableKernels(); *name != nullptr; ++name) {
    last = *name;
  }
  EXPECT_EQ(last, "scalar");
}

TEST(KernelTableTest, EverySetIsComplete) {
  for (const KernelTable* set : AllSets()) {
    EXPECT_NE(set->quantize_row, nullptr) << set->name;
    for (auto matmul : set->matmul) EXPECT_NE(matmul, nullptr) << set->name;
    for (size_t type = 0; type < kKvTypes; ++type) {
      EXPECT_NE(set->write_slot[type], nullptr) << set->name;
      EXPECT_NE(set->attend_decode[type], nullptr) << set->name;
      EXPECT_NE(set->attend_prefill[type], nullptr) << set->name;
      EXPECT_NE(set->attend_prefill_bf16[type], nullptr) << set->name;
      EXPECT_NE(set->value_stats[type], nullptr) << set->name;
    }
    EXPECT_NE(set->attend_prefill_mixed, nullptr) << set->name;
    EXPECT_NE(set->attend_prefill_mixed_bf16, nullptr) << set->name;
    EXPECT_NE(set->encode_cold, nullptr) << set->name;
    EXPECT_NE(set->scan_cold, nullptr) << set->name;
    EXPECT_NE(set->page_sums, nullptr) << set->name;
    EXPECT_NE(set->page_masses, nullptr) << set->name;
    EXPECT_NE(set->attend_cold, nullptr) << set->name;
    EXPECT_NE(set->reduce_mass, nullptr) << set->name;
    EXPECT_NE(set->rms_norm, nullptr) << set->name;
    EXPECT_NE(set->silu_multiply, nullptr) << set->name;
    EXPECT_NE(set->add, nullptr) << set->name;
    EXPECT_NE(set->rope_normal, nullptr) << set->name;
    EXPECT_NE(set->rope_neox, nullptr) << set->name;
    EXPECT_NE(set->ema_f16, nullptr) << set->name;
    EXPECT_NE(set->two_layer, nullptr) << set->name;
  }
}

}  // namespace
}  // namespace lkv
