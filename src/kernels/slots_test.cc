#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/copy_slot.h"
#include "kernels/kernel_table.h"
#include "kernels/testing_pages.h"
#include "kernels/testing_sets.h"

namespace lkv {
namespace {

// The tests write to and read from a lane's second page, which is of the
// lane's type.
constexpr uint32_t kFirstSlot = kPageSlots;

TEST(WriteSlotTest, StoresKeysByDimensionAndValuesByToken) {
  Random random(1);
  for (const KernelTable* set : AllSets()) {
    for (KvType type : {KvType::kF16, KvType::kBF16}) {
      for (uint32_t head_dim : {16, 64, 80, 256}) {
        for (uint32_t slot : {0, 5, 15}) {
          TestLane before(type, head_dim, 32, &random);
          TestLane lane = before;
          std::vector<float> k = random.Activations(head_dim);
          std::vector<float> v = random.Activations(head_dim);
          k[0] = 1e6f;   // infinity as f16
          k[1] = 1e-7f;  // subnormal as f16
          v[2] = std::nanf("");
          set->write_slot[lane.type_index()](lane.PageBytes(kFirstSlot), slot,
                                             head_dim, k.data(), v.data());
          for (uint32_t i = 0; i < 32; ++i) {
            for (uint32_t d = 0; d < head_dim; ++d) {
              bool mine = i == kFirstSlot + slot;
              ASSERT_EQ(lane.KeyHalf(i, d),
                        mine ? lane.Half(k[d]) : before.KeyHalf(i, d))
                  << set->name << " " << i << " " << d;
              ASSERT_EQ(lane.ValueHalf(i, d),
                        mine ? lane.Half(v[d]) : before.ValueHalf(i, d))
                  << set->name << " " << i << " " << d;
            }
          }
        }
      }
    }
  }
}

TEST(CopySlotTest, MovesKeyAndValueAndNothingElse) {
  Random random(2);
  for (KvType type : {KvType::kF16, KvType::kBF16, KvType::kInt8}) {
    for (uint32_t head_dim : {16, 64, 80}) {
      // Within a page as well, to the same slot too.
      for (const auto& [from, to] :
           {std::pair{0u, 0u}, {5u, 2u}, {15u, 14u}, {7u, 16u + 8u}}) {
        TestLane before(type, head_dim, 48, &random);
        TestLane lane = before;
        CopySlot(type, head_dim, before.PageBytes(kFirstSlot + from),
                 from % kPageSlots, lane.PageBytes(kFirstSlot + to),
                 to % kPageSlots);
        for (uint32_t i = 0; i < 48; ++i) {
          const uint32_t source = i == kFirstSlot + to ? kFirstSlot + from : i;
          for (uint32_t d = 0; d < head_dim; ++d) {
            ASSERT_EQ(lane.Key(i, d), before.Key(source, d)) << i << " " << d;
            ASSERT_EQ(lane.Value(i, d), before.Value(source, d))
                << i << " " << d;
          }
        }
      }
    }
  }
}

// The row that a slot of int8 should hold, within half a step.
void ExpectRow(const std::vector<float>& row, double scale,
               const std::function<double(uint32_t)>& stored) {
  float largest = 0;
  for (float x : row) largest = std::fmax(largest, std::fabs(x));
  EXPECT_GE(scale * 127, largest);
  EXPECT_LE(scale * 127, largest * (1 + 1.0 / 128) + 1e-38);
  for (uint32_t d = 0; d < row.size(); ++d) {
    ASSERT_NEAR(stored(d), row[d], scale * 0.50001) << d;
  }
}

TEST(WriteSlotTest, Int8StoresRowsWithinHalfAStepOfTheirLargestElement) {
  Random random(4);
  for (const KernelTable* set : AllSets()) {
    for (uint32_t head_dim : {16, 64, 80, 256}) {
      for (uint32_t slot : {0, 5, 15}) {
        SCOPED_TRACE(::testing::Message()
                     << set->name << " " << head_dim << " slot " << slot);
        TestLane before(KvType::kInt8, head_dim, 32, &random);
        TestLane lane = before;
        TestLane by_scalar = before;
        std::vector<float> k = random.Activations(head_dim);
        std::vector<float> v = random.Activations(head_dim);
        for (float& x : v) x *= 1e-6f;
        set->write_slot[lane.type_index()](lane.PageBytes(kFirstSlot), slot,
                                           head_dim, k.data(), v.data());
        SelectKernels("scalar")->write_slot[lane.type_index()](
            by_scalar.PageBytes(kFirstSlot), slot, head_dim, k.data(),
            v.data());
        EXPECT_EQ(lane.pool, by_scalar.pool);
        const uint32_t mine = kFirstSlot + slot;
        ExpectRow(k, BF16ToF32(lane.KeyScale(mine)), [&](uint32_t d) {
          return lane.Key(mine, d) - lane.key_offset[d];
        });
        ExpectRow(v, BF16ToF32(lane.ValueScale(mine)),
                  [&](uint32_t d) { return lane.Value(mine, d); });
        for (uint32_t i = 0; i < 32; ++i) {
          if (i == mine) continue;
          for (uint32_t d = 0; d < head_dim; ++d) {
            ASSERT_EQ(lane.Key(i, d), before.Key(i, d)) << i << " " << d;
            ASSERT_EQ(lane.Value(i, d), before.Value(i, d)) << i << " " << d;
          }
        }
      }
    }
  }
}

TEST(WriteSlotTest, Int8StoresARowOfZerosAsZeros) {
  Random random(5);
  for (const KernelTable* set : AllSets()) {
    TestLane lane(KvType::kInt8, 64, 32, &random);
    std::vector<float> zeros(64), tiny(64, 1e-35f);
    set->write_slot[lane.type_index()](lane.PageBytes(kFirstSlot), 3, 64,
                                       zeros.data(), tiny.data());
    for (uint32_t d = 0; d < 64; ++d) {
      ASSERT_EQ(lane.Key(kFirstSlot + 3, d), lane.key_offset[d]);
      ASSERT_EQ(lane.Value(kFirstSlot + 3, d), 0);
    }
  }
}

TEST(ValueStatsTest, GivesNormsAndDistancesOfTheSlotsAsked) {
  Random random(2);
  for (const KernelTable* set : AllSets()) {
    for (KvType type : kAllKvTypes) {
      for (uint32_t head_dim : {16, 64, 80, 96, 256}) {
        TestLane lane(type, head_dim, 32, &random);
        std::vector<float> mean = random.Activations(head_dim);
        // Sums of head_dim terms in f32, one after another.
        const double tolerance = head_dim * 0x1p-24;
        for (auto [first, last] : {std::pair{0u, 16u}, {3u, 4u}, {9u, 16u}}) {
          std::vector<float> norms(last - first), distances(last - first);
          set->value_stats[lane.type_index()](lane.PageBytes(kFirstSlot), first,
                                              last, head_dim, mean.data(),
                                              norms.data(), distances.data());
          for (uint32_t slot = first; slot < last; ++slot) {
            double norm = 0;
            double distance = 0;
            for (uint32_t d = 0; d < head_dim; ++d) {
              double v = lane.Value(kFirstSlot + slot, d);
              norm += v * v;
              distance += (v - mean[d]) * (v - mean[d]);
            }
            EXPECT_NEAR(norms[slot - first] / std::sqrt(norm), 1, tolerance)
                << set->name;
            EXPECT_NEAR(distances[slot - first] / std::sqrt(distance), 1,
                        tolerance)
                << set->name;
          }
        }
      }
    }
  }
}

TEST(ReduceMassTest, GivesTheMaximumAndTheMeanOverTheGroup) {
  Random random(3);
  TestLane lane(KvType::kF16, 64, 700, &random);
  for (const KernelTable* set : AllSets()) {
    for (uint32_t group : {1, 2, 3, 8, 9}) {
      for (uint32_t n_slots : {1, 16, 255, 256, 257, 700}) {
        std::vector<float> q = ScaledQueries(group, 64, &random);
        uint32_t n_padded = (n_slots + 15) / 16 * 16;
        uint32_t n_chunks = (n_slots + 255) / 256;
        std::vector<float> m(group), l(group), o(group * 64);
        std::vector<float> p(group * n_padded), p_max(group * n_chunks);
        set->attend_decode[0]({.run = lane.Run(n_slots),
                               .group = group,
                               .q = q.data(),
                               .m = m.data(),
                               .l = l.data(),
                               .o = o.data(),
                               .p = p.data(),
                               .p_stride = n_padded,
                               .p_max = p_max.data(),
                               .p_max_stride = n_chunks});
        std::vector<float> mass_max(n_padded, -1), mass_mean(n_padded, -1);
        set->reduce_mass({.p = p.data(),
                          .p_stride = n_padded,
                          .p_max = p_max.data(),
                          .p_max_stride = n_chunks,
                          .m = m.data(),
                          .l = l.data(),
                          .group = group,
                          .n_slots = n_slots,
                          .mass_max = mass_max.data(),
                          .mass_mean = mass_mean.data()});
        std::vector<double> max(n_slots), mean(n_slots);
        for (uint32_t g = 0; g < group; ++g) {
          ExactAttention exact(lane, n_slots, &q[g * 64]);
          for (uint32_t i = 0; i < n_slots; ++i) {
            max[i] = std::fmax(max[i], exact.weights[i]);
            mean[i] += exact.weights[i] / group;
          }
        }
        double total = 0;
        for (uint32_t i = 0; i < n_padded; ++i) {
          if (i >= n_slots) {
            ASSERT_EQ(mass_max[i], 0.0f);
            ASSERT_EQ(mass_mean[i], 0.0f);
            continue;
          }
          total += mass_mean[i];
          ASSERT_NEAR(mass_max[i], max[i], 1e-5 * max[i] + 1e-9)
              << set->name << " " << i;
          ASSERT_NEAR(mass_mean[i], mean[i], 1e-5 * mean[i] + 1e-9)
              << set->name << " " << i;
        }
        EXPECT_NEAR(total, 1, 1e-5) << set->name << " group " << group;
      }
    }
  }
}

}  // namespace
}  // namespace lkv
