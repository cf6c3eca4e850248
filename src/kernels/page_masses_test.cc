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
constexpr uint32_t kRunPages = 16;
// Of a share: sum and sum of all are off by 1.1e-4 at most.
constexpr double kTolerance = 2.3e-4;

// Masses of pages over which logits of `group` heads lie; other: of the slots
// beside them.
struct Pages {
  uint32_t group;
  uint32_t n_pages;
  std::vector<float> logits;  // [group, stride]
  std::vector<float> other_m, other_l;
  std::vector<float> mass;  // [n_padded] as the kernel finds it

  size_t stride() const { return size_t{n_pages + 1} * kPageSlots; }
  static uint32_t Padded(uint32_t n) {
    return (n + kMassPadding - 1) / kMassPadding * kMassPadding;
  }

  // By the sums of runs of kRunPages pages.
  std::vector<float> Masses(const KernelTable& set) const {
    const uint32_t n_runs = (n_pages + kRunPages - 1) / kRunPages;
    const size_t m_stride = Padded(n_runs);
    const size_t sum_stride = Padded(n_pages);
    // What nobody writes counts for nothing.
    std::vector<float> m(group * m_stride, 5.0f);
    std::vector<float> sums(group * sum_stride, 5.0f);
    for (uint32_t run = 0; run < n_runs; ++run) {
      const uint32_t first = run * kRunPages;
      const uint32_t n = std::min(kRunPages, n_pages - first);
      set.page_sums({.logits = &logits[size_t{first} * kPageSlots],
                     .logit_stride = stride(),
                     .group = group,
                     .n_groups = n / kColdGroupPages,
                     .m = &m[run],
                     .m_stride = m_stride,
                     .sums = &sums[first],
                     .sum_stride = sum_stride});
    }
    std::vector<float> result = mass;
    set.page_masses({.group = group,
                     .n_pages = n_pages,
                     .run_pages = kRunPages,
                     .m = m.data(),
                     .m_stride = m_stride,
                     .sums = sums.data(),
                     .sum_stride = sum_stride,
                     .other_m = other_m.data(),
                     .other_l = other_l.data(),
                     .mass = result.data()});
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
  Pages pages{group, n_pages, {}, {}, {}, {}};
  pages.mass.assign(Pages::Padded(n_pages), kLeftOut);
  for (uint32_t g = 0; g < group; ++g) {
    for (size_t i = 0; i < pages.stride(); ++i) {
      pages.logits.push_back(random.Uniform(-20, 20));
    }
    pages.other_m.push_back(random.Uniform(-20, 20));
    pages.other_l.push_back(random.Uniform(1, 30));
  }
  for (uint32_t page = 0; page < n_pages; ++page) {
    if (random.Below(4) != 0) pages.mass[page] = 0;
  }
  return pages;
}

TEST(PageMassesTest, EverySetSumsWhatCountsAndTakesTheLargestHead) {
  for (const KernelTable* set : AllSets()) {
    for (uint32_t group : {1u, 3u, 8u}) {
      for (uint32_t n_pages : {4u, 8u, 16u, 36u, 276u}) {
        const Pages pages = RandomPages(group, n_pages, group * 100 + n_pages);
        const std::vector<float> masses = pages.Masses(*set);
        for (uint32_t page = 0; page < n_pages; ++page) {
          if (pages.mass[page] < 0) {
            EXPECT_EQ(masses[page], kLeftOut) << set->name;
          } else {
            const double expected = pages.MassOf(page);
            ASSERT_NEAR(masses[page], expected, kTolerance * expected + 1e-12)
                << set->name << ", page " << page;
          }
        }
      }
    }
  }
}

TEST(PageMassesTest, WhatIsLeftOutTakesNothingFromTheOthers) {
  for (const KernelTable* set : AllSets()) {
    Pages pages = RandomPages(2, 8, 5);
    std::fill(pages.mass.begin(), pages.mass.end(), kLeftOut);
    for (uint32_t page : {0u, 2u, 3u, 5u, 6u, 7u}) pages.mass[page] = 0;
    const std::vector<float> before = pages.Masses(*set);
    for (uint32_t g = 0; g < 2; ++g) {
      for (uint32_t page : {1u, 4u}) {
        std::fill_n(&pages.logits[g * pages.stride() + page * kPageSlots],
                    kPageSlots, 60.0f);
      }
    }
    const std::vector<float> after = pages.Masses(*set);
    for (uint32_t page = 0; page < 8; ++page) {
      EXPECT_NEAR(after[page], before[page],
                  2 * kTolerance * std::fabs(before[page]))
          << set->name;
    }
  }
}

TEST(PageMassesTest, WithoutOtherSlotsMassesOfOneHeadSumToOne) {
  for (const KernelTable* set : AllSets()) {
    Pages pages = RandomPages(1, 20, 6);
    std::fill_n(pages.mass.begin(), 20, 0.0f);
    pages.other_m = {-std::numeric_limits<float>::infinity()};
    pages.other_l = {0};
    double sum = 0;
    for (float mass : pages.Masses(*set)) sum += std::max(mass, 0.0f);
    EXPECT_NEAR(sum, 1, 1e-5) << set->name;
  }
}

}  // namespace
}  // namespace lkv
