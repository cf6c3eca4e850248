// PolicyComparison: every policy on the same traces, with intervals over texts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bootstrap.h"
#include "base/thread_team.h"
#include "kernels/kernel_table.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"
#include "trace/replay.h"
#include "trace/trace_reader.h"

namespace lkv {

// Who is replayed: a policy of the cache, or an oracle.
struct Contestant {
  std::string name;
  // `lane` counts the lanes of the model.
  std::function<ReplaySums(const LaneTrace& trace, uint32_t lane,
                           const ReplayOptions& options)>
      replay;
};

// A policy by the name that --policy takes, or oracle_step, oracle_horizon,
// oracle_future. `cache` holds the policies' options. kInvalidArgument for
// other names, for `full`, which evicts nothing, for `repeat`, and for
// `expected_attention` with fewer sinks than kTraceSinkTokens. `predictor`
// (may be nullptr) is for the look-ahead policy; it and `kernels` must outlive
// it.
Result<Contestant> FindContestant(std::string_view name,
                                  const CacheOptions& cache,
                                  const HistoryNetwork* predictor,
                                  const KernelTable& kernels);

// All that FindContestant finds for such options, the oracles last.
std::vector<std::string> ContestantNames(const CacheOptions& cache);

struct ComparisonRow {
  std::string policy;
  double budget = 0;              // share of each text's tokens
  std::vector<ReplaySums> texts;  // one per trace
  ReplaySums total;
  // (oracle_future - policy) / (oracle_future - random) by mass hit: 0 as good
  // as the oracle, 1 as bad as chance.
  double regret = 0;
  // 95 % by bootstrap over texts; none of one text.
  std::optional<Interval> mass_hit_ci, regret_ci;
};

struct ComparisonOptions {
  std::vector<std::string> policies;
  std::vector<double> budgets;
  CacheOptions cache;  // the policies' options; what all protect; unit
  // Of the traces' model, or nullptr.
  const HistoryNetwork* predictor = nullptr;
};

// kInvalidArgument: a budget that protection alone would fill, or one that
// leaves nothing to evict.
Status CheckReplayBudget(double budget, const TraceReader& trace,
                         const ProtectedEnds& ends);

struct Contest {
  // random and oracle_future are among them: regret is measured by both.
  std::vector<Contestant> contestants;
  std::vector<double> budgets;
  ProtectedEnds ends;  // that all protect
  EvictionUnit unit = EvictionUnit::kPage;
};

// Rows by budget, then contestant. Lanes of a trace are replayed side by side.
// Requires traces of one model. Fails as CheckReplayBudget and as reading a
// trace does. `progress` (may be empty) is told lanes done and all.
Result<std::vector<ComparisonRow>> CompareContestants(
    std::span<const TraceReader* const> traces, const Contest& contest,
    ThreadTeam& team, const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled);

// The same of policies by name, for those asked for. kInvalidArgument also: an
// unknown policy, traces of several models.
Result<std::vector<ComparisonRow>> ComparePolicies(
    std::span<const TraceReader> traces, const ComparisonOptions& options,
    const KernelTable& kernels, ThreadTeam& team,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled);

}  // namespace lkv
