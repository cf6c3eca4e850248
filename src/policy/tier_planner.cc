#include "policy/tier_planner.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace lkv {
namespace {

// Whether page a leaves before page b: lower value first, then the older one.
// A total order, so that every selection below has one answer.
struct LeavesFirst {
  std::span<const float> value;
  bool operator()(uint32_t a, uint32_t b) const {
    return value[a] != value[b] ? value[a] < value[b] : a < b;
  }
};

}  // namespace

uint32_t ChooseVictims(const LanePlanInput& in, std::span<uint32_t> victims) {
  const uint32_t n_pages = static_cast<uint32_t>(in.score.size());
  CHECK(in.is_protected.empty() || in.is_protected.size() == n_pages);
  CHECK(victims.size() >= n_pages);
  CHECK(!in.two_stage || in.attention.size() == n_pages);

  uint32_t n_candidates = 0;
  for (uint32_t p = 0; p < n_pages; ++p) {
    if (in.is_protected.empty() || in.is_protected[p] == 0) {
      victims[n_candidates++] = p;
    }
  }
  const uint32_t n_leave = std::min(in.n_leave, n_candidates);

  // How many may leave at all. The threshold goes beyond n_leave down to the
  // floor; which of those really score below it is seen at the end.
  uint32_t n_wanted = n_leave;
  if (in.rule == EvictionRule::kScoreThreshold && n_pages > in.floor_pages) {
    n_wanted =
        std::max(n_wanted, std::min(n_candidates, n_pages - in.floor_pages));
  }
  n_wanted = std::min(n_wanted, in.max_moves);
  if (n_wanted == 0) return 0;

  // First stage: the best by attention move behind the others and are safe.
  auto first = victims.begin();
  auto last = first + n_candidates;
  if (in.two_stage) {
    uint32_t n_safe = (n_candidates - n_leave + 1) / 2;
    std::nth_element(first, last - n_safe, last, LeavesFirst{in.attention});
    last -= n_safe;
    n_wanted =
        std::min<uint32_t>(n_wanted, static_cast<uint32_t>(last - first));
  }

  // Second stage: the lowest scores of the rest.
  std::nth_element(first, first + n_wanted, last, LeavesFirst{in.score});
  std::sort(first, first + n_wanted, LeavesFirst{in.score});
  uint32_t n_victims = std::min(n_leave, n_wanted);
  while (n_victims < n_wanted && in.score[victims[n_victims]] < in.threshold) {
    ++n_victims;
  }
  std::sort(first, first + n_victims, std::greater<>());
  return n_victims;
}

}  // namespace lkv
