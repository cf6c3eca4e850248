#include "cli/bench_window_verb.h"

#include <algorithm>
#include <span>
#include <utility>

#include "cli/file_arguments.h"
#include "cli/json_document.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "options/option_table.h"
#include "trace/window_replay.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

constexpr WindowLaw kLaws[] = {WindowLaw::kSymmetric, WindowLaw::kSource};

std::string LawText(WindowLaw law) {
  CacheOptions cache;
  cache.window_law = law;
  return FormatOption(*FindOption("window_law"), cache);
}

// One text: the change of pattern, and what each law made of it.
struct TextCurves {
  std::string trace;
  std::vector<double> change;                   // [tokens]
  std::vector<WindowController::Options> laws;  // [laws]
  std::vector<std::vector<uint32_t>> windows;   // [laws, tokens]

  uint32_t n_tokens() const { return static_cast<uint32_t>(change.size()); }
};

TextCurves MakeCurves(const std::string& trace, std::vector<double> change,
                      CacheOptions cache, double budget) {
  TextCurves curves;
  curves.trace = trace;
  curves.change = std::move(change);
  for (WindowLaw law : kLaws) {
    cache.window_law = law;
    curves.laws.push_back(ReplayedWindow(cache, budget, curves.n_tokens()));
    curves.windows.push_back(ReplayWindow(curves.change, curves.laws.back()));
  }
  return curves;
}

// What lies between two marks, as one law had it.
struct PartRow {
  std::string trace;
  WindowLaw law;
  uint32_t begin, end;
  double change_max;
  WindowSummary window;

  double ReversalsPer1000() const {
    return 1000.0 * window.n_reversals / (end - begin);
  }
};

Status CheckAscends(const std::vector<uint32_t>& marks) {
  for (size_t i = 1; i < marks.size(); ++i) {
    if (marks[i] <= marks[i - 1]) {
      return InvalidArgument(
          "--marks: " + std::to_string(marks[i]) + " does not lie behind " +
          std::to_string(marks[i - 1]) + "; give positions that ascend");
    }
  }
  return {};
}

// `marks` ascend; those behind the text part nothing.
std::vector<PartRow> PartsOf(const TextCurves& curves,
                             const std::vector<uint32_t>& marks) {
  std::vector<uint32_t> borders = {0};
  for (uint32_t mark : marks) {
    if (mark < curves.n_tokens()) borders.push_back(mark);
  }
  borders.push_back(curves.n_tokens());
  std::vector<PartRow> rows;
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const uint32_t begin = borders[i];
    const uint32_t n = borders[i + 1] - begin;
    const auto change = std::span(curves.change).subspan(begin, n);
    for (size_t law = 0; law < curves.laws.size(); ++law) {
      rows.push_back(
          {.trace = curves.trace,
           .law = curves.laws[law].law,
           .begin = begin,
           .end = begin + n,
           .change_max = *std::max_element(change.begin(), change.end()),
           .window = SummarizeWindow(
               std::span(curves.windows[law]).subspan(begin, n))});
    }
  }
  return rows;
}

// The rows of one text.
std::string TableOf(std::span<const PartRow> rows) {
  TextTable table({{"tokens", Align::kRight},
                   {"law"},
                   {"change", Align::kRight},
                   {"first 128", Align::kRight},
                   {"mean", Align::kRight},
                   {"min", Align::kRight},
                   {"max", Align::kRight},
                   {"at end", Align::kRight},
                   {"moves", Align::kRight},
                   {"turns/1000", Align::kRight}});
  for (const PartRow& row : rows) {
    table.AddRow(
        {std::to_string(row.begin) + "-" + std::to_string(row.end),
         LawText(row.law), FormatFixed(row.change_max, 3),
         FormatCount(row.window.first_max_tokens),
         FormatFixed(row.window.mean_tokens, 0),
         FormatCount(row.window.min_tokens), FormatCount(row.window.max_tokens),
         FormatCount(row.window.end_tokens), FormatCount(row.window.n_moves),
         FormatFixed(row.ReversalsPer1000(), 1)});
  }
  return table.Print();
}

// A table for each text, below its name where there are several.
std::string RowsAsText(std::span<const PartRow> rows) {
  std::string out;
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin;
    while (end < rows.size() && rows[end].trace == rows[begin].trace) ++end;
    if (begin > 0) out += '\n';
    if (begin > 0 || end < rows.size()) out += rows[begin].trace + "\n";
    out += TableOf(rows.subspan(begin, end - begin));
    begin = end;
  }
  return out;
}

Json RowAsJson(const PartRow& row) {
  return {{"trace", row.trace},
          {"law", LawText(row.law)},
          {"begin", row.begin},
          {"end", row.end},
          {"change_max", row.change_max},
          {"first_window_max_tokens", row.window.first_max_tokens},
          {"window_mean_tokens", row.window.mean_tokens},
          {"window_min_tokens", row.window.min_tokens},
          {"window_max_tokens", row.window.max_tokens},
          {"window_end_tokens", row.window.end_tokens},
          {"moves", row.window.n_moves},
          {"reversals_per_1000_tokens", row.ReversalsPer1000()}};
}

// The curves themselves: a row per token.
Json CurvesAsJson(const TextCurves& curves) {
  Json rows = Json::array();
  for (uint32_t i = 0; i < curves.n_tokens(); ++i) {
    Json window;
    for (size_t law = 0; law < curves.laws.size(); ++law) {
      window[LawText(curves.laws[law].law)] = curves.windows[law][i];
    }
    rows.push_back({{"position", i},
                    {"change", curves.change[i]},
                    {"window_tokens", std::move(window)}});
  }
  const WindowController::Options& options = curves.laws.front();
  return {{"trace", curves.trace},
          {"tokens", curves.n_tokens()},
          {"budget_tokens", options.budget_tokens},
          {"base_window_tokens", options.limits.base_tokens},
          {"change_threshold", options.change_threshold},
          {"curve", std::move(rows)}};
}

}  // namespace

void BenchWindowVerb::AddTo(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "window", "Show how the window moves along texts, under both laws");
  AddList(*verb, "--trace", &traces_, "Traces (lkv trace record)")->required();
  verb->add_option("--budget", budget_, "Share of the text that may stay [50%]")
      ->type_name("SHARE");
  AddList(*verb, "--marks", &marks_, 1, kMaxTraceSteps,
          "Positions, ascending, between which a part of the text gets rows of "
          "its own: where it turns");
  threads_.AddTo(*verb);
  config_.AddTo(*verb, ConfigArguments::Offer::kFileOnly);
  verb->add_flag("--json", json_,
                 "Print one JSON document, with the window at every token");
  verb->footer(
      "Nothing is evicted: the detector sees the attention of the full cache.\n"
      "change: the most that the pattern changed, nats. first 128: the widest\n"
      "window in the first 128 tokens of the part. turns/1000: moves against\n"
      "the direction of the move before, in 1,000 tokens.\n"
      "Without window keys the base is a quarter of the budget, the least a\n"
      "sixteenth. scripts/plot_window.py draws the JSON.\n\n"
      "Example:\n"
      "  lkv trace synth --topic 512 -o topics.trace\n"
      "  lkv bench window --trace topics.trace --marks 512,1024,1536");
}

ExitCode BenchWindowVerb::Run(Output& out, Interrupt& interrupt) const {
  const auto configuration = config_.Load();
  if (!configuration.ok()) return out.Fail(configuration.status());
  if (Status s = CheckAscends(marks_); !s.ok()) return out.Fail(s);
  const auto budget = ReadShares("--budget", {budget_});
  if (!budget.ok()) return out.Fail(budget.status());
  const auto team = threads_.CreateTeam();
  if (!team.ok()) return out.Fail(team.status());
  if (Status s = CheckEachOnce(traces_); !s.ok()) return out.Fail(s);
  const auto traces = TraceReader::OpenAll(LocalFileSystem(), traces_);
  if (!traces.ok()) return out.Fail(traces.status());
  interrupt.SetFlag();
  std::vector<PartRow> rows;
  Json texts = Json::array();
  for (const TraceReader& trace : *traces) {
    Progress progress("window");
    auto change = ReplayPatternChange(
        trace, configuration->cache(), **team,
        [&](uint64_t n_done, uint64_t n_all) { progress.Show(n_done, n_all); },
        [&] { return interrupt.Requested(); });
    progress.Erase();
    if (!change.ok()) return out.Fail(change.status());
    const TextCurves curves =
        MakeCurves(trace.path(), *std::move(change), configuration->cache(),
                   budget->front());
    for (PartRow& row : PartsOf(curves, marks_)) rows.push_back(std::move(row));
    if (json_) texts.push_back(CurvesAsJson(curves));
  }
  if (json_) {
    Json list = Json::array();
    for (const PartRow& row : rows) list.push_back(RowAsJson(row));
    out.Write(DumpJson({{"rows", list}, {"texts", texts}}));
  } else {
    out.Write(RowsAsText(rows));
  }
  return ExitCode::kDone;
}

}  // namespace lkv::cli
