#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_pages.h"
#include "kernels/testing_sets.h"

namespace lkv {
namespace {

// What one decode call returns, in buffers that are exactly large enough.
struct Decoded {
  std::vector<float> m, l, o, p, p_max;
  size_t n_padded;
  size_t n_chunks;

  Decoded(const KernelTable& set, const TestLane& lane, uint32_t n_slots,
          uint32_t group, const std::vector<float>& q, bool keep_p)
      : m(group), l(group), o(size_t{group} * lane.head_dim) {
    n_padded = (n_slots + kPageSlots - 1) / kPageSlots * kPageSlots;
    n_chunks = (n_slots + kAttendChunkSlots - 1) / kAttendChunkSlots;
    if (keep_p) {
      p.assign(group * n_padded, -1.0f);
      p_max.assign(group * n_chunks, -1.0f);
    }
    // Prefetching it changes nothing.
    const PageRun next = lane.Run(std::min(n_slots, 40u));
    AttendDecodeArgs args = {.run = lane.Run(n_slots),
                             .next = keep_p ? nullptr : &next,
                             .group = group,
                             .q = q.data(),
                             .m = m.data(),
                             .l = l.data(),
                             .o = o.data(),
                             .p = keep_p ? p.data() : nullptr,
                             .p_stride = n_padded,
                             .p_max = keep_p ? p_max.data() : nullptr,
                             .p_max_stride = n_chunks};
    set.attend_decode[lane.type_index()](args);
  }
};

void ExpectExact(const KernelTable& set, const TestLane& lane, uint32_t n_slots,
                 uint32_t group, const std::vector<float>& q) {
  SCOPED_TRACE(::testing::Message()
               << set.name << " type " << lane.type_index() << " head_dim "
               << lane.head_dim << " slots " << n_slots << " group " << group);
  Decoded got(set, lane, n_slots, group, q, true);
  const double tolerance = lane.tolerance(set);
  Decoded without_p(set, lane, n_slots, group, q, false);
  for (uint32_t g = 0; g < group; ++g) {
    ExactAttention exact(lane, n_slots, &q[g * lane.head_dim]);
    EXPECT_NEAR(got.m[g], exact.max_logit, tolerance);
    EXPECT_NEAR(got.l[g] / exact.sum, 1, tolerance);
    EXPECT_EQ(got.m[g], without_p.m[g]);
    EXPECT_EQ(got.l[g], without_p.l[g]);
    for (uint32_t d = 0; d < lane.head_dim; ++d) {
      size_t i = g * lane.head_dim + d;
      ASSERT_NEAR(got.o[i] / got.l[g], exact.output[d], tolerance / 2) << d;
      ASSERT_EQ(got.o[i], without_p.o[i]);
    }
    double total = 0;
    for (uint32_t i = 0; i < got.n_padded; ++i) {
      float p = got.p[g * got.n_padded + i];
      if (i >= n_slots) {
        ASSERT_EQ(p, 0.0f) << i;
        continue;
      }
      double p_max = got.p_max[g * got.n_chunks + i / kAttendChunkSlots];
      double weight = p * std::exp(p_max - got.m[g]) / got.l[g];
      total += weight;
      ASSERT_NEAR(weight, exact.weights[i], tolerance * exact.weights[i] + 1e-9)
          << i;
    }
    EXPECT_NEAR(total, 1, 1e-5);
  }
}

TEST(AttendDecodeTest, EverySetAgreesWithDoublePrecisionForEveryShape) {
  Random random(1);
  for (uint32_t head_dim : {16, 64, 80, 96, 128, 256}) {
    for (KvType type : kAllKvTypes) {
      TestLane lane(type, head_dim, 300, &random);
      for (uint32_t group = 1; group <= 9; ++group) {
        std::vector<float> q = ScaledQueries(group, head_dim, &random);
        for (const KernelTable* set : AllSets()) {
          ExpectExact(*set, lane, 300, group, q);
        }
      }
    }
  }
}

TEST(AttendDecodeTest, EverySetAgreesForEveryLength) {
  Random random(2);
  TestLane lane(KvType::kF16, 64, 1000, &random);
  TestLane int8_lane(KvType::kInt8, 64, 1000, &random);
  std::vector<float> q = ScaledQueries(3, 64, &random);
  std::vector<uint32_t> lengths = {240, 255, 256, 257, 272, 511,
                                   512, 513, 528, 769, 1000};
  for (uint32_t n = 1; n <= 65; ++n) lengths.push_back(n);
  for (const KernelTable* set : AllSets()) {
    for (uint32_t n : lengths) {
      ExpectExact(*set, lane, n, 3, q);
      ExpectExact(*set, int8_lane, n, 3, q);
    }
  }
}

TEST(AttendDecodeTest, Int8RunsHoldAnyNumberOfExactPages) {
  Random random(6);
  std::vector<float> q = ScaledQueries(3, 64, &random);
  for (uint32_t n_exact : {0, 1, 2, 3, 17}) {
    // Pages on the heap, ids and all: a look behind their end is an error.
    for (uint32_t n : {5, 16, 17, 40, 300}) {
      TestLane lane(KvType::kInt8, 64, n, &random, n_exact);
      for (const KernelTable* set : AllSets()) ExpectExact(*set, lane, n, 3, q);
    }
  }
}

TEST(AttendDecodeTest, NaNBehindTheEndIsNotSeen) {
  Random random(3);
  for (const KernelTable* set : AllSets()) {
    for (KvType type : kAllKvTypes) {
      TestLane lane(type, 64, 37, &random);
      std::vector<float> q = ScaledQueries(3, 64, &random);
      lane.PoisonFrom(37);
      ExpectExact(*set, lane, 37, 3, q);
    }
  }
}

TEST(AttendDecodeTest, AnEmptyRunGivesTheEmptyState) {
  Random random(4);
  TestLane lane(KvType::kF16, 64, 16, &random);
  std::vector<float> q = ScaledQueries(2, 64, &random);
  for (const KernelTable* set : AllSets()) {
    Decoded got(*set, lane, 0, 2, q, true);
    for (float m : got.m) {
      EXPECT_EQ(m, -std::numeric_limits<float>::infinity());
    }
    for (float l : got.l) EXPECT_EQ(l, 0.0f);
    for (float o : got.o) EXPECT_EQ(o, 0.0f);
  }
}

// One slot far above the others, in the last chunk: the earlier probabilities
// must shrink to nothing, not overflow.
TEST(AttendDecodeTest, ALateLargeLogitTakesAllTheWeight) {
  Random random(5);
  TestLane lane(KvType::kF16, 64, 600, &random);
  std::vector<float> q(64, 1.0f);
  lane.SetKey(599, 4.0f);  // logit 256
  for (const KernelTable* set : AllSets()) {
    Decoded got(*set, lane, 600, 1, q, true);
    EXPECT_FLOAT_EQ(got.m[0], 256.0f);
    EXPECT_NEAR(got.l[0], 1.0f, 1e-6f);
    for (uint32_t d = 0; d < 64; ++d) {
      EXPECT_NEAR(got.o[d], lane.Value(599, d), 1e-6);
    }
  }
}

}  // namespace
}  // namespace lkv
