#include "policy/page_stat_policy.h"

#include <algorithm>

#include "base/check.h"

namespace lkv {

void PageStatPolicy::AddPage(uint32_t lane, uint32_t first_pos) {
  stat_.of(lane)[pages_.n_pages(lane)] = InitialStat(lane, first_pos);
  pages_.AddPage(lane, first_pos);
}

void PageStatPolicy::AddSlots(uint32_t lane, uint32_t n,
                              const float* /*value_norms*/,
                              const float* /*value_distances*/) {
  pages_.AddSlots(lane, n);
}

void PageStatPolicy::ScorePages(uint32_t lane, uint32_t /*now_pos*/,
                                const PageScores& out) const {
  const uint32_t n_pages = pages_.n_pages(lane);
  CHECK(out.attention.size() == n_pages && out.score.size() == n_pages);
  std::copy_n(stat_.of(lane), n_pages, out.score.begin());
  std::copy_n(stat_.of(lane), n_pages, out.attention.begin());
}

void PageStatPolicy::RemovePage(uint32_t lane, uint32_t index) {
  uint32_t n_pages = pages_.RemovePage(lane, index);
  stat_.RemovePage(lane, index, n_pages);
}

}  // namespace lkv
