#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_cold.h"
#include "kernels/testing_sets.h"

namespace lkv {
namespace {

// The f16 pages of one group.
struct Exact {
  uint32_t head_dim;
  std::vector<uint16_t> halves;

  explicit Exact(uint32_t head_dim)
      : head_dim(head_dim), halves(kColdGroupPages * page_halves()) {}
  // Channels and rows of different sizes and means, as models have them.
  Exact(uint32_t head_dim, Random* random) : Exact(head_dim) {
    for (uint32_t d = 0; d < head_dim; ++d) {
      const float size = std::exp(random->Uniform(-3, 3));
      const float mean = random->Uniform(-4, 4);
      for (uint32_t slot = 0; slot < kColdGroupSlots; ++slot) {
        Key(slot, d) = F32ToF16(size * random->Activation() + mean);
        Value(slot, d) = F32ToF16(random->Activation());
      }
    }
  }

  size_t page_halves() const { return size_t{2} * kPageSlots * head_dim; }
  uint16_t* Page(uint32_t page) { return &halves[page * page_halves()]; }
  uint16_t& Key(uint32_t slot, uint32_t d) {
    return Page(slot / kPageSlots)[d * kPageSlots + slot % kPageSlots];
  }
  uint16_t& Value(uint32_t slot, uint32_t d) {
    return Page(slot /
                kPageSlots)[(kPageSlots + slot % kPageSlots) * head_dim + d];
  }
  std::vector<double> Channel(uint32_t d) {
    std::vector<double> keys;
    for (uint32_t slot = 0; slot < kColdGroupSlots; ++slot) {
      keys.push_back(F16ToF32(Key(slot, d)));
    }
    return keys;
  }
  std::vector<double> Row(uint32_t slot) {
    std::vector<double> values;
    for (uint32_t d = 0; d < head_dim; ++d) {
      values.push_back(F16ToF32(Value(slot, d)));
    }
    return values;
  }

  ColdGroups Encode(const KernelTable& set) {
    ColdGroups groups(1, head_dim);
    EncodeColdArgs args = {};
    args.head_dim = head_dim;
    args.digest = groups.digest(0);
    for (uint32_t page = 0; page < kColdGroupPages; ++page) {
      args.pages[page] = reinterpret_cast<const uint8_t*>(Page(page));
      args.bodies[page] = groups.body(page);
    }
    set.encode_cold(args);
    return groups;
  }
};

constexpr double kSmallestHalf = 1.0 / (1 << 24);

// min is the least of a channel or row, and 15 steps reach the largest with at
// most the next larger f16 too much.
void ExpectTightScale(double scale, double min,
                      const std::vector<double>& exact) {
  const auto [low, high] = std::minmax_element(exact.begin(), exact.end());
  EXPECT_EQ(min, *low);
  const double step = (*high - *low) / 15;
  EXPECT_GE(scale, step * (1 - 1e-6));
  EXPECT_LE(scale, step * (1 + 1.0 / 1024) + kSmallestHalf);
}

// No element is further off than half a step, which f32 may exceed in the last
// bits, and scales are as small as that allows.
void ExpectHalfAStep(Exact* exact, const ColdGroups& cold) {
  constexpr double kHalf = 0.5 * (1 + 1e-5);
  for (uint32_t d = 0; d < exact->head_dim; ++d) {
    const std::vector<double> keys = exact->Channel(d);
    SCOPED_TRACE(::testing::Message() << "channel " << d);
    ExpectTightScale(cold.KeyScale(0, d), cold.KeyMin(0, d), keys);
    for (uint32_t slot = 0; slot < kColdGroupSlots; ++slot) {
      ASSERT_NEAR(cold.Key(slot, d), keys[slot], kHalf * cold.KeyScale(0, d))
          << slot;
    }
  }
  for (uint32_t slot = 0; slot < kColdGroupSlots; ++slot) {
    const std::vector<double> values = exact->Row(slot);
    SCOPED_TRACE(::testing::Message() << "slot " << slot);
    ExpectTightScale(cold.ValueScale(slot), cold.ValueMin(slot), values);
    for (uint32_t d = 0; d < exact->head_dim; ++d) {
      ASSERT_NEAR(cold.Value(slot, d), values[d], kHalf * cold.ValueScale(slot))
          << d;
    }
  }
}

TEST(EncodeColdTest, NoElementIsFurtherOffThanHalfAStep) {
  Random random(1);
  for (uint32_t head_dim : {16, 48, 64, 80, 128, 256}) {
    for (const KernelTable* set : AllSets()) {
      SCOPED_TRACE(::testing::Message() << set->name << " " << head_dim);
      Exact exact(head_dim, &random);
      ExpectHalfAStep(&exact, exact.Encode(*set));
    }
  }
}

TEST(EncodeColdTest, EverySetWritesTheSameBytesAndNoneBehindThem) {
  Random random(2);
  for (uint32_t head_dim : {16, 32, 64, 80, 96, 112, 256}) {
    Exact exact(head_dim, &random);
    const ColdGroups expected = exact.Encode(*SelectKernels("scalar"));
    for (const KernelTable* set : AllSets()) {
      const ColdGroups got = exact.Encode(*set);
      EXPECT_TRUE(got == expected) << set->name << " " << head_dim;
      EXPECT_TRUE(got.GuardsAreIntact()) << set->name << " " << head_dim;
    }
  }
}

TEST(EncodeColdTest, EqualElementsAreExact) {
  Random random(3);
  for (const KernelTable* set : AllSets()) {
    Exact exact(64);
    for (uint32_t slot = 0; slot < kColdGroupSlots; ++slot) {
      const uint16_t value = F32ToF16(random.Uniform(-9, 9));
      for (uint32_t d = 0; d < 64; ++d) {
        exact.Key(slot, d) = F32ToF16(static_cast<float>(d) - 31.7f);
        exact.Value(slot, d) = value;
      }
    }
    const ColdGroups cold = exact.Encode(*set);
    for (uint32_t slot = 0; slot < kColdGroupSlots; ++slot) {
      for (uint32_t d = 0; d < 64; ++d) {
        ASSERT_EQ(cold.Key(slot, d), exact.Channel(d)[slot]) << set->name;
        ASSERT_EQ(cold.Value(slot, d), exact.Row(slot)[d]) << set->name;
      }
    }
  }
}

// Elements of any size that f16 has, with the largest differences and ones that
// a scale of f16 can hardly resolve.
TEST(EncodeColdTest, HugeAndTinyElementsKeepToHalfAStep) {
  for (const KernelTable* set : AllSets()) {
    SCOPED_TRACE(set->name);
    Random random(4);
    Exact exact(64);
    for (uint32_t d = 0; d < 64; ++d) {
      for (uint32_t slot = 0; slot < kColdGroupSlots; ++slot) {
        const auto bits = static_cast<uint16_t>(random.Below(0x7c00));
        const auto sign = static_cast<uint16_t>(random.Below(2) << 15);
        // Subnormal values, keys of any size in one channel of four.
        exact.Value(slot, d) = bits % 64 | sign;
        exact.Key(slot, d) = (d % 4 == 0 ? bits : bits % (d + 1)) | sign;
      }
    }
    for (uint32_t slot = 0; slot < kColdGroupSlots; ++slot) {
      exact.Key(slot, 0) = slot % 2 == 0 ? 0x7bff : 0xfbff;  // +-65504
      exact.Key(slot, 1) = slot % 2 == 0 ? 0x0001 : 0x0000;  // 2^-24
    }
    ExpectHalfAStep(&exact, exact.Encode(*set));
  }
}

TEST(EncodeColdTest, TheSignOfZeroLeavesNoTrace) {
  Random random(5);
  Exact positive(64);
  Exact mixed(64);
  for (size_t i = 0; i < mixed.halves.size(); ++i) {
    positive.halves[i] = i % 3 == 0 ? 0x3c00 : 0x0000;
    mixed.halves[i] = i % 3 == 0             ? 0x3c00
                      : random.Below(2) == 0 ? 0x0000
                                             : 0x8000;
  }
  for (const KernelTable* set : AllSets()) {
    EXPECT_TRUE(mixed.Encode(*set) == positive.Encode(*set)) << set->name;
  }
}

}  // namespace
}  // namespace lkv
