#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_cold.h"
#include "kernels/testing_pages.h"
#include "kernels/testing_sets.h"

namespace lkv {
namespace {

// Some pages of cold groups, in some order.
struct Chosen {
  const ColdGroups& cold;
  std::vector<uint32_t> pages;

  uint32_t head_dim = cold.head_dim;
  uint32_t n_slots() const {
    return static_cast<uint32_t>(pages.size()) * kPageSlots;
  }
  uint32_t SlotOf(uint32_t slot) const {
    return pages[slot / kPageSlots] * kPageSlots + slot % kPageSlots;
  }
  // With the query times the scale rounded as ColdEstimates says.
  double Logit(uint32_t slot, const float* q) const {
    const uint32_t s = SlotOf(slot);
    const uint32_t group = s / kColdGroupSlots;
    const auto product = [&](uint32_t d) {
      return q[d] * cold.KeyScale(group, d);
    };
    double largest = 1e-30;
    for (uint32_t d = 0; d < head_dim; ++d) {
      largest = std::fmax(largest, std::fabs(product(d)));
    }
    const double unit =
        std::exp2(std::floor(std::log2(largest * 128 / 127))) / 64;
    double logit = 0;
    for (uint32_t d = 0; d < head_dim; ++d) {
      const double rounded = unit * std::nearbyint(product(d) / unit);
      logit += q[d] * (cold.KeyMin(group, d) + 7.5 * cold.KeyScale(group, d)) +
               rounded * (cold.KeyLevel(s, d) - 7.5);
    }
    return logit;
  }
  double Value(uint32_t slot, uint32_t d) const {
    return cold.Value(SlotOf(slot), d);
  }
};

double LogitOf(const Chosen& chosen, uint32_t slot, const float* q) {
  return chosen.Logit(slot, q);
}

// n random pages, some next to each other, none twice.
std::vector<uint32_t> SomePages(const ColdGroups& cold, uint32_t n,
                                Random* random) {
  std::vector<uint32_t> pages;
  uint32_t n_left = cold.n_pages();
  for (uint32_t page = 0; page < cold.n_pages(); ++page, --n_left) {
    const auto n_wanted = n - static_cast<uint32_t>(pages.size());
    if (random->Below(n_left) < n_wanted) pages.push_back(page);
  }
  return pages;
}

// What one call returns, in buffers that are exactly large enough.
struct Attended {
  std::vector<float> m, l, o, p, p_max;
  size_t n_chunks;

  Attended(const KernelTable& set, const Chosen& chosen, uint32_t group,
           const std::vector<float>& q, bool keep_p)
      : m(group), l(group), o(size_t{group} * chosen.head_dim) {
    n_chunks = (chosen.n_slots() + kAttendChunkSlots - 1) / kAttendChunkSlots;
    if (keep_p) {
      p.assign(size_t{group} * chosen.n_slots(), -1.0f);
      p_max.assign(group * n_chunks, -1.0f);
    }
    const Scanned scanned(set, chosen.cold, group, q, chosen.cold.n_groups());
    std::vector<ChosenColdPage> pages;
    for (uint32_t page : chosen.pages) {
      pages.push_back({.body = chosen.cold.Page(page).body, .page = page});
    }
    set.attend_cold({.pages = pages.data(),
                     .n_pages = static_cast<uint32_t>(pages.size()),
                     .of = scanned.estimates,
                     .m = m.data(),
                     .l = l.data(),
                     .o = o.data(),
                     .p = keep_p ? p.data() : nullptr,
                     .p_stride = chosen.n_slots(),
                     .p_max = keep_p ? p_max.data() : nullptr,
                     .p_max_stride = n_chunks});
  }
};

// Of outputs: vector sets round what multiplies levels to 2^-14 of the largest
// scale, 2 / 15 here, so a slot's part may be off by 6e-5.
double ToleranceOf(const KernelTable& set) {
  return set.name == std::string("scalar") ? 1e-5 : 3e-4;
}

void ExpectExact(const KernelTable& set, const Chosen& chosen, uint32_t group,
                 const std::vector<float>& q) {
  SCOPED_TRACE(::testing::Message()
               << set.name << " head_dim " << chosen.head_dim << " pages "
               << chosen.pages.size() << " group " << group);
  const Attended got(set, chosen, group, q, true);
  const Attended without_p(set, chosen, group, q, false);
  constexpr double kTolerance = 2e-5;
  for (uint32_t g = 0; g < group; ++g) {
    const ExactAttention exact(chosen, chosen.n_slots(),
                               &q[g * chosen.head_dim]);
    EXPECT_NEAR(got.m[g], exact.max_logit, kTolerance);
    EXPECT_NEAR(got.l[g] / exact.sum, 1, kTolerance);
    EXPECT_EQ(got.m[g], without_p.m[g]);
    EXPECT_EQ(got.l[g], without_p.l[g]);
    for (uint32_t d = 0; d < chosen.head_dim; ++d) {
      const size_t i = g * chosen.head_dim + d;
      ASSERT_NEAR(got.o[i] / got.l[g], exact.output[d], ToleranceOf(set)) << d;
      ASSERT_EQ(got.o[i], without_p.o[i]);
    }
    for (uint32_t slot = 0; slot < chosen.n_slots(); ++slot) {
      const float p = got.p[size_t{g} * chosen.n_slots() + slot];
      const double p_max =
          got.p_max[g * got.n_chunks + slot / kAttendChunkSlots];
      const double weight = p * std::exp(p_max - got.m[g]) / got.l[g];
      ASSERT_NEAR(weight, exact.weights[slot],
                  kTolerance * exact.weights[slot] + 1e-9)
          << slot;
    }
  }
}

TEST(AttendColdTest, EverySetAgreesWithDoublePrecisionForEveryShape) {
  Random random(1);
  for (uint32_t head_dim : {16, 48, 64, 80, 96, 128, 256}) {
    const ColdGroups cold(10, head_dim, &random);
    for (uint32_t group = 1; group <= 9; ++group) {
      const std::vector<float> q = ScaledQueries(group, head_dim, &random);
      const Chosen chosen = {cold, SomePages(cold, 19, &random)};
      for (const KernelTable* set : AllSets()) {
        ExpectExact(*set, chosen, group, q);
      }
    }
  }
}

TEST(AttendColdTest, EverySetAgreesForEveryNumberOfPages) {
  Random random(2);
  const ColdGroups cold(20, 64, &random);
  const std::vector<float> q = ScaledQueries(3, 64, &random);
  for (uint32_t n = 1; n <= cold.n_pages(); ++n) {
    const Chosen chosen = {cold, SomePages(cold, n, &random)};
    for (const KernelTable* set : AllSets()) ExpectExact(*set, chosen, 3, q);
  }
}

TEST(AttendColdTest, PagesMayComeInAnyOrder) {
  Random random(3);
  const ColdGroups cold(2, 64, &random);
  const std::vector<float> q = ScaledQueries(3, 64, &random);
  const Chosen chosen = {cold, {5, 2, 7, 0, 3, 1, 6}};
  for (const KernelTable* set : AllSets()) ExpectExact(*set, chosen, 3, q);
}

// A key far above the others, in the last chunk: the earlier probabilities must
// shrink to nothing, not overflow.
TEST(AttendColdTest, ALateLargeLogitTakesAllTheWeight) {
  Random random(4);
  ColdGroups cold(5, 64, &random);
  for (uint32_t d = 0; d < 64; ++d) cold.SetKeyScale(4, d, 0, 4);
  const std::vector<float> q(64, 1.0f);  // logit 256
  const Chosen chosen = {
      cold, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
  for (const KernelTable* set : AllSets()) {
    const Attended got(*set, chosen, 1, q, true);
    EXPECT_FLOAT_EQ(got.m[0], 256.0f) << set->name;
    EXPECT_NEAR(got.l[0], 16.0f, 1e-5f) << set->name;
    for (uint32_t slot = 0; slot < 16 * kPageSlots; ++slot) {
      const double shrink = std::exp(double{got.p_max[0]} - got.m[0]);
      ASSERT_LT(got.p[slot] * shrink, 1e-30) << set->name;
    }
  }
}

TEST(AttendColdTest, AQueryOfZeroGivesTheMeanOfTheValues) {
  Random random(5);
  const ColdGroups cold(1, 64, &random);
  const Chosen chosen = {cold, {1, 2}};
  const std::vector<float> q(64, 0.0f);
  for (const KernelTable* set : AllSets()) {
    const Attended got(*set, chosen, 1, q, false);
    EXPECT_EQ(got.m[0], 0.0f) << set->name;
    EXPECT_EQ(got.l[0], 32.0f) << set->name;
    for (uint32_t d = 0; d < 64; ++d) {
      double mean = 0;
      for (uint32_t slot = 0; slot < 32; ++slot) {
        mean += chosen.Value(slot, d) / 32;
      }
      EXPECT_NEAR(got.o[d] / 32, mean, 1e-4) << set->name;
    }
  }
}

}  // namespace
}  // namespace lkv
