#include "cli/bench_policies_verb.h"

#include <algorithm>
#include <span>
#include <utility>

#include "cli/exit_code.h"
#include "cli/file_arguments.h"
#include "cli/json_document.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "engine/kernel_choice.h"
#include "engine/predictors.h"
#include "options/budget_text.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

Json RowAsJson(const ComparisonRow& row) {
  return {{"policy", row.policy},
          {"budget", row.budget},
          {"mass_hit", row.total.mass_hit()},
          {"topk_hit", row.total.topk_hit()},
          {"byte_hit", row.total.byte_hit()},
          {"raw_hit", row.total.raw_hit()},
          {"regret", row.regret},
          {"ci95", IntervalAsJson(row.mass_hit_ci)},
          {"regret_ci95", IntervalAsJson(row.regret_ci)}};
}

std::string IntervalAsText(const std::optional<Interval>& interval) {
  if (!interval) return "-";
  return FormatFixed(interval->low, 3) + "-" + FormatFixed(interval->high, 3);
}

std::string RowsAsText(const std::vector<ComparisonRow>& rows) {
  TextTable table({{"budget", Align::kRight},
                   {"policy"},
                   {"mass hit", Align::kRight},
                   {"95 %", Align::kRight},
                   {"top-k hit", Align::kRight},
                   {"raw hit", Align::kRight},
                   {"regret", Align::kRight},
                   {"95 %", Align::kRight}});
  for (const ComparisonRow& row : rows) {
    table.AddRow({FormatPercent(row.budget), row.policy,
                  FormatFixed(row.total.mass_hit(), 3),
                  IntervalAsText(row.mass_hit_ci),
                  FormatFixed(row.total.topk_hit(), 3),
                  FormatFixed(row.total.raw_hit(), 3),
                  FormatFixed(row.regret, 3), IntervalAsText(row.regret_ci)});
  }
  return table.Print();
}

const std::vector<std::string> kUsualBudgets = {"6.25%", "12.5%", "25%", "50%"};

// Leaves out the first of the usual budgets, which ascend, as far as they
// cannot hold what all policies protect; the last one stays, to be refused.
// Returns those that went.
std::string LeaveOutSmall(std::span<const TraceReader> traces,
                          ComparisonOptions& options) {
  const ProtectedEnds ends = ProtectedEndsOf(options.cache);
  const auto is_too_small = [&](double budget) {
    return std::any_of(traces.begin(), traces.end(), [&](const auto& trace) {
      return !CheckReplayBudget(budget, trace, ends).ok();
    });
  };
  std::string left_out;
  while (options.budgets.size() > 1 && is_too_small(options.budgets.front())) {
    left_out += (left_out.empty() ? "" : ", ") +
                FormatBudget({.kind = Budget::Kind::kShare,
                              .share = options.budgets.front()});
    options.budgets.erase(options.budgets.begin());
  }
  return left_out;
}

}  // namespace

void BenchPoliciesVerb::AddTo(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "policies", "Replay every policy on attention traces");
  AddList(*verb, "--trace", &traces_, "Traces of one model (lkv trace record)")
      ->required();
  AddList(*verb, "--budget", &budgets_,
          "Shares of the text that stay [6.25%,12.5%,25%,50%, those that "
          "texts are long enough for]");
  AddList(*verb, "--policies", &policies_, "Policies and oracles [all]");
  threads_.AddTo(*verb);
  config_.AddTo(*verb, ConfigArguments::Offer::kFileOnly);
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "Mass hit: resident share of the attention that is neither on sinks nor\n"
      "on the newest tokens. Top-k hit: of the tokens that hold 90 % of it.\n"
      "Regret: 0 as good as the oracle that evicts what the whole rest of the\n"
      "text attends to least, 1 as bad as chance. oracle_step and\n"
      "oracle_horizon may bring pages back. Intervals: over texts. Single\n"
      "tokens leave, measured at one step in 8, or with --set unit=page whole\n"
      "pages, measured at every step.\n\n"
      "Example:\n"
      "  lkv bench policies --trace novel.trace,code.trace --budget 12.5%");
}

Result<ComparisonOptions> BenchPoliciesVerb::ReadOptions() const {
  auto configuration = config_.Load();
  if (!configuration.ok()) return configuration.status();
  ComparisonOptions options;
  options.cache = configuration->cache();
  auto budgets =
      ReadShares("--budget", budgets_.empty() ? kUsualBudgets : budgets_);
  if (!budgets.ok()) return budgets.status();
  options.budgets = *std::move(budgets);
  options.policies =
      policies_.empty() ? ContestantNames(options.cache) : policies_;
  return options;
}

ExitCode BenchPoliciesVerb::Run(Output& out, Interrupt& interrupt) const {
  auto options = ReadOptions();
  if (!options.ok()) return out.Fail(options.status());
  const auto kernels = ChooseKernels();
  if (!kernels.ok()) return out.Fail(kernels.status());
  const auto team = threads_.CreateTeam();
  if (!team.ok()) return out.Fail(team.status());
  if (Status s = CheckEachOnce(traces_); !s.ok()) return out.Fail(s);
  const auto traces = TraceReader::OpenAll(LocalFileSystem(), traces_);
  if (!traces.ok()) return out.Fail(traces.status());
  std::string left_out;
  if (budgets_.empty()) left_out = LeaveOutSmall(*traces, *options);
  const TraceInfo& info = traces->front().info();
  Predictors predictors(info.model, info.shape.n_lanes());
  const auto predictor = predictors.Find(options->cache.predictor);
  if (!predictor.ok()) return out.Fail(predictor.status());
  options->predictor = predictor->get();
  interrupt.SetFlag();
  Progress progress("replay");
  const auto rows = ComparePolicies(
      *traces, *options, **kernels, **team,
      [&](uint64_t n_done, uint64_t n_all) { progress.Show(n_done, n_all); },
      [&] { return interrupt.Requested(); });
  progress.Erase();
  if (!rows.ok()) return out.Fail(rows.status());
  if (!left_out.empty()) {
    PrintError("--budget: " + left_out +
               " of these texts cannot hold sinks and newest tokens and is "
               "left out; use longer texts or protect fewer (recent_tokens)");
  }
  if (json_) {
    Json list = Json::array();
    for (const ComparisonRow& row : *rows) list.push_back(RowAsJson(row));
    out.Write(DumpJson({{"rows", list}}));
  } else {
    out.Write(RowsAsText(*rows));
  }
  return ExitCode::kDone;
}

}  // namespace lkv::cli
