#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/testing_sets.h"

namespace lkv {
namespace {

constexpr float kLeftOut = -1;

// Masses of pages over which logits of `group` heads lie; other: of the slots
// beside them.
struct Pages {
  uint32_t group;
  uint32_t n_pages;
  std::vector<float> logits;  // [group, stride]
  std::vector<float> other_m, other_l;
  std::vector<float> mass;  // as the kernel finds it

  size_t stride() const { return size_t{n_pages + 1} * kPageSlots; }

  std::vector<float> Masses(const KernelTable& set) const {
    std::vector<float> result = mass;
    std::vector<float> page_sums(n_pages);
    set.page_masses({.logits = logits.data(),
                     .logit_stride = stride(),
                     .group = group,
                     .n_pages = n_pages,
                     .other_m = other_m.data(),
                     .other_l = other_l.data(),
                     .mass = result.data(),
                     .page_sums = page_sums.data()});
    return result;
  }

  double MassOf(uint32_t page) const {
    double most = 0;
    for (uint32_t g = 0; g < group; ++g) {
      double sum = 0, of_page = 0;
      // Relative to 0: the logits of these tests are small enough for double.
      for (uint32_t i = 0; i < n_pages * kPageSlots; ++i) {
        if (mass[i / kPageSlots] < 0) continue;
        const double p = std::exp(double{logits[g * stride() + i]});
        sum += p;
        if (i / kPageSlots == page) of_page += p;
      }
      sum += other_l[g] * std::exp(double{other_m[g]});
      most = std::max(most, of_page / sum);
    }
    return most;
  }
};

Pages RandomPages(uint32_t group, uint32_t n_pages, uint32_t seed) {
  Random random(seed);
  Pages pages{group, n_pages, {}, {}, {}, std::vector<float>(n_pages)};
  for (uint32_t g = 0; g < group; ++g) {
    for (size_t i = 0; i < pages.stride(); ++i) {
      pages.logits.push_back(random.Uniform(-20, 20));
    }
    pages.other_m.push_back(random.Uniform(-20, 20));
    pages.other_l.push_back(random.Uniform(1, 30));
  }
  for (float& mass : pages.mass) mass = random.Below(4) == 0 ? kLeftOut : 0;
  return pages;
}

TEST(PageMassesTest, EverySetSumsWhatCountsAndTakesTheLargestHead) {
  for (const KernelTable* set : AllSets()) {
    for (uint32_t group : {1u, 3u, 8u}) {
      for (uint32_t n_pages : {1u, 2u, 33u}) {
        const Pages pages = RandomPages(group, n_pages, group * 100 + n_pages);
        const std::vector<float> masses = pages.Masses(*set);
        for (uint32_t page = 0; page < n_pages; ++page) {
          if (pages.mass[page] < 0) {
            EXPECT_EQ(masses[page], kLeftOut) << set->name;
          } else {
            const double expected = pages.MassOf(page);
            ASSERT_NEAR(masses[page], expected, 1e-5 * expected + 1e-12)
                << set->name << ", page " << page;
          }
        }
      }
    }
  }
}

TEST(PageMassesTest, WhatIsLeftOutTakesNothingFromTheOthers) {
  for (const KernelTable* set : AllSets()) {
    Pages pages = RandomPages(2, 6, 5);
    pages.mass = {0, kLeftOut, 0, 0, kLeftOut, 0};
    const std::vector<float> before = pages.Masses(*set);
    for (uint32_t g = 0; g < 2; ++g) {
      for (uint32_t page : {1u, 4u}) {
        std::fill_n(&pages.logits[g * pages.stride() + page * kPageSlots],
                    kPageSlots, 1000.0f);
      }
    }
    EXPECT_EQ(pages.Masses(*set), before) << set->name;
  }
}

TEST(PageMassesTest, WithoutOtherSlotsMassesOfOneHeadSumToOne) {
  for (const KernelTable* set : AllSets()) {
    Pages pages = RandomPages(1, 20, 6);
    std::fill(pages.mass.begin(), pages.mass.end(), 0.0f);
    pages.other_m = {-std::numeric_limits<float>::infinity()};
    pages.other_l = {0};
    double sum = 0;
    for (float mass : pages.Masses(*set)) sum += mass;
    EXPECT_NEAR(sum, 1, 1e-5) << set->name;
  }
}

}  // namespace
}  // namespace lkv
