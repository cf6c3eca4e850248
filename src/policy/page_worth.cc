#include "policy/page_worth.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/types.h"
#include "policy/page_totals.h"

namespace lkv {
namespace {

void Reduce(PageWorth worth, std::span<const float> slots,
            std::span<float> pages) {
  const uint32_t n_full = static_cast<uint32_t>(slots.size()) / kPageTokens;
  for (uint32_t p = 0; p < n_full; ++p) {
    const float* page = &slots[size_t{p} * kPageTokens];
    pages[p] = worth == PageWorth::kBest ? MaxOfPage(page) : SumPage(page);
  }
  if (n_full == pages.size()) return;
  const std::span<const float> open = slots.subspan(n_full * kPageTokens);
  pages[n_full] =
      worth == PageWorth::kBest
          ? std::accumulate(open.begin(), open.end(), 0.0f,
                            [](float a, float b) { return std::max(a, b); })
          : std::accumulate(open.begin(), open.end(), 0.0f);
  // Pages opened ahead hold nothing.
  std::fill(pages.begin() + n_full + 1, pages.end(), 0.0f);
}

}  // namespace

void ScorePages(const EvictionPolicy& policy, uint32_t lane, uint32_t now_pos,
                const SlotScores& slots, const PageScores& pages) {
  CHECK(slots.score.size() <= pages.score.size() * kPageTokens);
  policy.ScoreSlots(lane, now_pos, slots);
  Reduce(policy.page_worth(), slots.score, pages.score);
  Reduce(policy.page_worth(), slots.attention, pages.attention);
}

}  // namespace lkv
