#include "train/holdout_replay.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "policy/protection.h"
#include "trace/policy_comparison.h"

namespace lkv {
namespace {

Contestant Find(std::string_view name, const HistoryNetwork* network,
                const KernelTable& kernels) {
  Result<Contestant> found =
      FindContestant(name, CacheOptions(), network, kernels);
  CHECK(found.ok());
  return *std::move(found);
}

}  // namespace

Result<HoldoutReplay> ReplayHoldout(
    std::span<const TraceReader* const> traces, const HistoryNetwork& network,
    const KernelTable& kernels, ThreadTeam& team,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  const ProtectedEnds ends = ProtectedEndsOf(CacheOptions());
  HoldoutReplay replay;
  std::vector<const TraceReader*> long_enough;
  for (const TraceReader* trace : traces) {
    const Status fits = CheckReplayBudget(kHoldoutBudget, *trace, ends);
    if (fits.ok()) {
      long_enough.push_back(trace);
    } else {
      replay.why_none = fits.message();
    }
  }
  if (long_enough.empty()) return replay;
  replay.why_none.clear();
  const auto rows = CompareContestants(
      long_enough,
      {.contestants = {Find("lookahead", &network, kernels),
                       Find("ema", nullptr, kernels),
                       Find("oracle_future", nullptr, kernels),
                       Find("random", nullptr, kernels)},
       .budgets = {kHoldoutBudget},
       .ends = ends,
       .unit = CacheOptions().unit},
      team, progress, cancelled);
  if (!rows.ok()) return rows.status();
  replay.hits = {.mass_hit = (*rows)[0].total.mass_hit(),
                 .ema_mass_hit = (*rows)[1].total.mass_hit(),
                 .oracle_mass_hit = (*rows)[2].total.mass_hit(),
                 .random_mass_hit = (*rows)[3].total.mass_hit(),
                 .regret = (*rows)[0].regret};
  return replay;
}

}  // namespace lkv
