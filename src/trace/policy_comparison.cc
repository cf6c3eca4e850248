#include "trace/policy_comparison.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "options/budget_text.h"
#include "options/option_table.h"
#include "options/policy_text.h"
#include "trace/replay_oracles.h"

namespace lkv {
namespace {

constexpr std::string_view kOracleStep = "oracle_step";
constexpr std::string_view kOracleHorizon = "oracle_horizon";
constexpr std::string_view kOracleFuture = "oracle_future";
constexpr std::string_view kRandom = "random";

Contestant MakePolicyContestant(const CacheOptions& options,
                                std::string_view name,
                                const HistoryNetwork* predictor,
                                const KernelTable& kernels) {
  return {
      std::string(name),
      [options, predictor, &kernels](const LaneTrace& trace, uint32_t lane,
                                     const ReplayOptions& replay) {
        CacheOptions mine = options;
        mine.seed += lane;  // or `random` would keep the same everywhere
        return ReplayLane(trace, replay, [&](const PolicyCapacity& capacity) {
          return MakeEvictionPolicy(mine, capacity, kernels,
                                    {.network = predictor, .first_lane = lane});
        });
      }};
}

Contestant MakeReturnContestant(std::string_view name, uint32_t horizon) {
  return {std::string(name), [horizon](const LaneTrace& trace, uint32_t,
                                       const ReplayOptions& replay) {
            return ReplayWithReturn(trace, replay, horizon);
          }};
}

// The capacity that a share of a text comes to.
uint32_t CapacityPages(double budget, uint32_t n_steps) {
  return static_cast<uint32_t>(std::lround(budget * n_steps / kPageTokens));
}

double Regret(double hit, double oracle, double random) {
  return oracle > random ? (oracle - hit) / (oracle - random) : 0;
}

double MassHit(const std::vector<ReplaySums>& texts,
               const std::vector<size_t>& draw) {
  ReplaySums total;
  for (size_t text : draw) total += texts[text];
  return total.mass_hit();
}

// The policies asked for, and behind them what regret is measured by where it
// was not asked for: chance and the oracle.
Result<std::vector<Contestant>> FindContestants(
    const ComparisonOptions& options, const KernelTable& kernels) {
  std::vector<std::string> names = options.policies;
  for (std::string_view name : {kRandom, kOracleFuture}) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.emplace_back(name);
    }
  }
  std::vector<Contestant> contestants;
  for (const std::string& name : names) {
    Result<Contestant> found =
        FindContestant(name, options.cache, options.predictor, kernels);
    if (!found.ok()) return found.status();
    contestants.push_back(*std::move(found));
  }
  return contestants;
}

// Adds some lanes of text number `text` to its sums in all rows.
Status ReplayLanes(const TraceReader& trace, size_t text, LaneRange lanes,
                   const Contest& contest, ThreadTeam& team,
                   std::vector<ComparisonRow>& rows) {
  const std::vector<Contestant>& contestants = contest.contestants;
  std::vector<Status> status(lanes.count());
  std::vector<std::vector<ReplaySums>> sums(lanes.count());
  team.ForEach(lanes.count(), [&](size_t i) {
    const uint32_t lane = lanes.begin + static_cast<uint32_t>(i);
    Result<LaneTrace> lane_trace = trace.ReadLane(lane);
    if (!lane_trace.ok()) {
      status[i] = lane_trace.status();
      return;
    }
    for (size_t r = 0; r < rows.size(); ++r) {
      sums[i].push_back(contestants[r % contestants.size()].replay(
          *lane_trace, trace.info().ModelLane(lane),
          {.capacity_pages = CapacityPages(rows[r].budget, trace.n_steps()),
           .ends = contest.ends,
           .unit = contest.unit}));
    }
  });
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!status[i].ok()) return status[i];
    for (size_t r = 0; r < rows.size(); ++r) rows[r].texts[text] += sums[i][r];
  }
  return {};
}

const ComparisonRow& RowOf(std::span<const ComparisonRow> rows,
                           std::string_view policy) {
  const auto row = std::find_if(
      rows.begin(), rows.end(),
      [&](const ComparisonRow& one) { return one.policy == policy; });
  CHECK(row != rows.end());
  return *row;
}

// Completes the rows of one budget.
void AddStatistics(const Resamples& resamples, std::span<ComparisonRow> rows) {
  const std::vector<ReplaySums>& chance = RowOf(rows, kRandom).texts;
  const std::vector<ReplaySums>& oracle = RowOf(rows, kOracleFuture).texts;
  std::vector<size_t> once(oracle.size());
  std::iota(once.begin(), once.end(), size_t{0});
  for (ComparisonRow& row : rows) {
    for (const ReplaySums& sums : row.texts) row.total += sums;
    const auto hit = [&](const std::vector<size_t>& draw) {
      return MassHit(row.texts, draw);
    };
    const auto regret = [&](const std::vector<size_t>& draw) {
      return Regret(hit(draw), MassHit(oracle, draw), MassHit(chance, draw));
    };
    row.regret = regret(once);
    if (once.size() < 2) continue;
    row.mass_hit_ci = resamples.Ci95(hit);
    row.regret_ci = resamples.Ci95(regret);
  }
}

// Whether the policy can be replayed.
Status CheckReplays(const CacheOptions& options) {
  if (options.policy == PolicyName::kFull) {
    return InvalidArgument("policy: full evicts nothing; leave it out");
  }
  if (options.policy == PolicyName::kRepeat) {
    return InvalidArgument(
        "policy: repeat reads the text twice, which no replay can; leave it "
        "out, or compare with lkv eval");
  }
  if (options.policy == PolicyName::kExpectedAttention &&
      options.sink_tokens < kTraceSinkTokens) {
    return InvalidArgument(
        "policy: traces expect nothing of the first " +
        std::to_string(kTraceSinkTokens) +
        " tokens, which expected_attention must not take for worthless; "
        "protect as many (sink_tokens), or leave it out");
  }
  return {};
}

}  // namespace

std::vector<std::string> ContestantNames(const CacheOptions& cache) {
  std::vector<std::string> names;
  for (std::string_view name : FindOption("policy")->choices) {
    CacheOptions options = cache;
    options.policy = *ParsePolicy(name);
    if (CheckReplays(options).ok()) names.emplace_back(name);
  }
  for (std::string_view oracle : {kOracleStep, kOracleHorizon, kOracleFuture}) {
    names.emplace_back(oracle);
  }
  return names;
}

Result<Contestant> FindContestant(std::string_view name,
                                  const CacheOptions& cache,
                                  const HistoryNetwork* predictor,
                                  const KernelTable& kernels) {
  if (name == kOracleStep) return MakeReturnContestant(name, 1);
  if (name == kOracleHorizon) {
    return MakeReturnContestant(name, cache.prediction_steps);
  }
  if (name == kOracleFuture) {
    return Contestant{std::string(name), [](const LaneTrace& trace, uint32_t,
                                            const ReplayOptions& replay) {
                        return ReplayFuture(trace, replay);
                      }};
  }
  const Result<PolicyName> policy = ParsePolicy(name);
  if (!policy.ok()) return policy.status();
  CacheOptions options = cache;
  options.policy = *policy;
  if (Status s = CheckReplays(options); !s.ok()) return s;
  return MakePolicyContestant(options, name, predictor, kernels);
}

Status CheckReplayBudget(double budget, const TraceReader& trace,
                         const ProtectedEnds& ends) {
  const uint32_t n_pages = CapacityPages(budget, trace.n_steps());
  const std::string share = FormatBudget({Budget::Kind::kShare, budget}) +
                            " of " + std::to_string(trace.n_steps()) +
                            " tokens";
  if (n_pages < MinReplayPages(ends)) {
    return InvalidArgument(
        "budget: " + share + " are fewer than the " +
        std::to_string(MinReplayPages(ends) * kPageTokens) +
        " that sinks and newest tokens need; use a longer text or protect"
        " fewer (recent_tokens)");
  }
  if (n_pages >= PagesOf(trace.n_steps())) {
    return InvalidArgument("budget: " + share +
                           " leave nothing to evict; use less than 100%");
  }
  return {};
}

Result<std::vector<ComparisonRow>> CompareContestants(
    std::span<const TraceReader* const> traces, const Contest& contest,
    ThreadTeam& team, const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  uint64_t n_lanes = 0;
  for (const TraceReader* trace : traces) {
    n_lanes += trace->info().n_lanes();
    for (double budget : contest.budgets) {
      if (Status s = CheckReplayBudget(budget, *trace, contest.ends); !s.ok()) {
        return s;
      }
    }
  }
  const size_t n_contestants = contest.contestants.size();
  std::vector<ComparisonRow> rows(contest.budgets.size() * n_contestants);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].policy = contest.contestants[i % n_contestants].name;
    rows[i].budget = contest.budgets[i / n_contestants];
    rows[i].texts.resize(traces.size());
  }
  uint64_t n_done = 0;
  for (size_t text = 0; text < traces.size(); ++text) {
    // As many lanes at a time as there are threads: each takes 17 MB.
    const uint32_t n_text_lanes = traces[text]->info().n_lanes();
    for (uint32_t first = 0; first < n_text_lanes; first += team.n_threads()) {
      if (cancelled && cancelled()) {
        return Cancelled("replay: stopped on request");
      }
      const uint32_t n = std::min(team.n_threads(), n_text_lanes - first);
      if (Status s = ReplayLanes(*traces[text], text, {first, first + n},
                                 contest, team, rows);
          !s.ok()) {
        return s;
      }
      n_done += n;
      if (progress) progress(n_done, n_lanes);
    }
  }
  const Resamples resamples(traces.size());
  for (size_t first = 0; first < rows.size(); first += n_contestants) {
    AddStatistics(resamples, std::span(rows).subspan(first, n_contestants));
  }
  return rows;
}

Result<std::vector<ComparisonRow>> ComparePolicies(
    std::span<const TraceReader> traces, const ComparisonOptions& options,
    const KernelTable& kernels, ThreadTeam& team,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  Result<std::vector<Contestant>> contestants =
      FindContestants(options, kernels);
  if (!contestants.ok()) return contestants.status();
  const size_t n_contestants = contestants->size();
  std::vector<const TraceReader*> readers;
  for (const TraceReader& trace : traces) {
    if (trace.info().model != traces.front().info().model) {
      return InvalidArgument(trace.path() + ": is of another model than " +
                             traces.front().path() +
                             "; compare on traces of one model");
    }
    readers.push_back(&trace);
  }
  Result<std::vector<ComparisonRow>> rows =
      CompareContestants(readers,
                         {.contestants = *std::move(contestants),
                          .budgets = options.budgets,
                          .ends = ProtectedEndsOf(options.cache),
                          .unit = options.cache.unit},
                         team, progress, cancelled);
  if (!rows.ok()) return rows.status();
  std::vector<ComparisonRow> asked;
  for (size_t i = 0; i < rows->size(); ++i) {
    if (i % n_contestants < options.policies.size()) {
      asked.push_back(std::move((*rows)[i]));
    }
  }
  return asked;
}

}  // namespace lkv
