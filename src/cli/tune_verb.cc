#include "cli/tune_verb.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/printable_text.h"
#include "base/stopwatch.h"
#include "cli/file_arguments.h"
#include "cli/number_text.h"
#include "cli/open_engine.h"
#include "cli/tune_page.h"
#include "io/file_system.h"
#include "options/budget_text.h"

namespace lkv::cli {
namespace {

// Above 0 and up to 1, as "0.99" or "99%".
Result<double> ReadAgreement(const std::string& text) {
  if (text.ends_with('%')) {
    const Result<double> share = ParseShare(text);
    if (share.ok()) return *share;
  } else {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end && value > 0 &&
        value <= 1) {
      return value;
    }
  }
  return InvalidArgument("--target-agreement: " + Quoted(text) +
                         " is no share of 1; give for example 0.99 or 99%");
}

// What a budget is of a window, in which `full` is everything.
double ShareOfWindow(const Budget& budget, uint64_t window_tokens,
                     uint64_t bytes_per_token) {
  const double amount = static_cast<double>(budget.amount);
  switch (budget.kind) {
    case Budget::Kind::kFull:
      return 1;
    case Budget::Kind::kShare:
      return budget.share;
    case Budget::Kind::kTokens:
      return amount / static_cast<double>(window_tokens);
    case Budget::Kind::kBytes:
      return amount / static_cast<double>(window_tokens * bytes_per_token);
  }
  return 1;
}

// Makes --target-memory one of the budgets of a window of this model.
Status AddMemoryGoal(const KvShape& shape, TuneReport* report) {
  TuningProblem& problem = report->problem;
  if (problem.goal.kind != TuningGoal::Kind::kMemory) return {};
  const uint64_t bytes_per_token =
      shape.bytes_per_token(KvTypeOf(report->setup.base));
  const uint64_t window_tokens = report->setup.window_tokens();
  const double share =
      ShareOfWindow(report->memory, window_tokens, bytes_per_token);
  if (share >= 1) {
    return InvalidArgument("--target-memory: " + FormatBudget(report->memory) +
                           " holds a whole window of " +
                           FormatCount(window_tokens) + " tokens (" +
                           FormatCount(window_tokens * bytes_per_token) +
                           " bytes); give less or a longer --context");
  }
  problem.goal.value = share;
  std::vector<double>& shares = problem.shares;
  if (std::find(shares.begin(), shares.end(), share) == shares.end()) {
    shares.push_back(share);
    std::sort(shares.begin(), shares.end());
  }
  return {};
}

Status WriteFile(const std::string& path, std::string_view text) {
  auto file = LocalFileSystem().Create(path);
  if (!file.ok()) return file.status();
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  if (Status s = (*file)->Append({bytes, text.size()}); !s.ok()) return s;
  return (*file)->Commit();
}

// What a goal that was not reached says. A file of an earlier search may lie
// at `yaml` (empty: none was asked for) and would pass for this one's result.
std::string MissText(const TuneReport& report, const std::string& yaml) {
  std::string text = "goal: " + GoalText(report) +
                     " was not reached; the nearest is " + BestText(report);
  if (report.result.end != TuningResult::End::kInterrupted) {
    text += report.problem.goal.kind == TuningGoal::Kind::kAgreement
                ? "; lower it or give a larger --budget"
                : "; raise it: sinks and newest tokens need more";
  }
  if (!yaml.empty()) text += "; nothing was written to " + Quoted(yaml);
  return text;
}

}  // namespace

void TuneVerb::AddTo(CLI::App& app) {
  CLI::App* verb = app.add_subcommand(
      "tune", "Search settings and budget for texts of your own");
  model_.AddTo(*verb, ModelArguments::Offer::kThreads);
  AddList(*verb, "-f,--file", &texts_, "Texts; windows are taken from each")
      ->required();
  CLI::Option* agreement =
      verb->add_option("--target-agreement", target_agreement_,
                       "The least memory whose most likely tokens agree with "
                       "the full cache's in this share [0.95]")
          ->type_name("SHARE");
  verb->add_option("--target-memory", target_memory_,
                   "The least KL within this memory: a share (25%), tokens "
                   "(2048) or bytes (512MiB)")
      ->type_name("SIZE")
      ->excludes(agreement);
  AddNumber(*verb, "--minutes", &minutes_, 1, 10'000, "Time limit");
  AddList(*verb, "--budget", &budgets_,
          "Shares of a window to try, two at least [25%,50%,75%]");
  AddNumber(*verb, "--windows", &n_windows_, 1, 1000,
            "Most windows of each text; they do not overlap");
  AddNumber(*verb, "--context", &context_tokens_, 1, 1u << 20,
            "Tokens of a window that are read as a prompt");
  AddNumber(*verb, "--forced", &forced_tokens_, 1, 1u << 16,
            "Tokens of a window that are fed one by one and compared");
  verb->add_option("--seed", seed_, "Which windows are used first [1]")
      ->type_name("N")
      ->check(WholeNumber(0, kMostSeed));
  verb->add_option("-o,--html", html_, "A page with charts and the table")
      ->type_name("FILE.html")
      ->check(NamesSomething());
  verb->add_option("--yaml", yaml_, "The best configuration, for --config")
      ->type_name("FILE.yaml")
      ->check(NamesSomething());
  config_.AddTo(*verb, ConfigArguments::Offer::kKvType);
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "Keys that --config or --set gives stay as they are; the others are\n"
      "searched. Settings that are better only within noise do not replace "
      "the\n"
      "defaults.\n\n"
      "Example:\n"
      "  lkv tune -f notes.txt --target-agreement 0.97 -o tuned.html");
}

Result<TuneReport> TuneVerb::ReadOptions() const {
  auto configuration = config_.Load();
  if (!configuration.ok()) return configuration.status();
  TuneReport report;
  report.setup = {.base = configuration->cache(),
                  .space = MakeTuningSpace([&](std::string_view key) {
                    return configuration->IsSet(key);
                  }),
                  .context_tokens = context_tokens_,
                  .forced_tokens = forced_tokens_};
  if (report.setup.base.policy != PolicyName::kLookahead) {
    return InvalidArgument(
        "policy: only lookahead has settings to tune; leave policy and "
        "enabled as they are");
  }
  report.n_texts = texts_.size();
  TuningProblem& problem = report.problem;
  for (const TuningAxis& axis : report.setup.space) {
    problem.n_choices.push_back(static_cast<uint32_t>(axis.size()));
  }
  auto shares = ReadShares("--budget", budgets_);
  if (!shares.ok()) return shares.status();
  problem.shares = *std::move(shares);
  std::sort(problem.shares.begin(), problem.shares.end());
  problem.shares.erase(
      std::unique(problem.shares.begin(), problem.shares.end()),
      problem.shares.end());
  if (problem.shares.size() < 2) {
    return InvalidArgument(
        "--budget: settings are compared between budgets; give two shares");
  }
  problem.limit_s = minutes_ * 60.0;
  if (target_agreement_) {
    auto agreement = ReadAgreement(*target_agreement_);
    if (!agreement.ok()) return agreement.status();
    problem.goal.value = *agreement;
  }
  if (target_memory_) {
    auto memory = ParseBudget(*target_memory_);
    if (!memory.ok()) {
      return InvalidArgument("--target-memory: " +
                             std::string(memory.status().message()));
    }
    report.memory = *memory;
    problem.goal.kind = TuningGoal::Kind::kMemory;
  }
  return report;
}

Status TuneVerb::CheckOutputs() const {
  if (!html_.empty() && html_ == yaml_) {
    return InvalidArgument("--yaml: " + Quoted(yaml_) +
                           " is the file of --html; name another");
  }
  for (const std::string& path : {html_, yaml_}) {
    if (path.empty()) continue;
    if (Status s = CheckNotAnInput(path, texts_); !s.ok()) return s;
    if (const auto probe = LocalFileSystem().Create(path); !probe.ok()) {
      return probe.status();
    }
  }
  return {};
}

Status TuneVerb::WriteOutputs(const TuneReport& report) const {
  if (!html_.empty()) {
    if (Status s = WriteFile(html_, TunePage(report)); !s.ok()) return s;
  }
  if (yaml_.empty() || !report.result.is_reached) return {};
  return WriteFile(yaml_, TuneAsConfig(report));
}

Status TuneVerb::Search(Engine& engine, const std::vector<TextFile>& files,
                        const Interrupt& interrupt, TuneReport* report) const {
  TuningProblem& problem = report->problem;
  if (Status s = AddMemoryGoal(engine.architecture().kv_shape(), report);
      !s.ok()) {
    return s;
  }
  const auto windows = CutIntoWindows(Tokenize(engine.tokenizer(), files),
                                      report->setup, n_windows_, seed_);
  if (!windows.ok()) return windows.status();
  problem.n_windows = static_cast<uint32_t>(windows->size());
  for (const TokenizedText& window : *windows) {
    report->window_names.push_back(window.name);
  }

  const Stopwatch watch;
  const auto seconds = [&] { return watch.Seconds(); };
  Progress progress("tune");
  const auto show = [&](const std::string& what) {
    progress.Show(static_cast<uint64_t>(seconds()),
                  static_cast<uint64_t>(problem.limit_s), what);
  };
  show("s");
  auto result =
      Tune(problem,
           MeasureWithModel(
               engine, *windows, report->setup,
               [&](uint64_t n_done, uint64_t n_all) {
                 show("s; run " + FormatCount(n_done) + " of " +
                      FormatCount(n_all) + " on a window");
               },
               [&] {
                 return interrupt.Requested() || seconds() >= problem.limit_s;
               }),
           seconds);
  if (!result.ok()) return result.status();
  report->result = *std::move(result);
  report->seconds = seconds();
  return {};
}

ExitCode TuneVerb::Run(Output& out, Interrupt& interrupt) const {
  auto report = ReadOptions();
  if (!report.ok()) return out.Fail(report.status());
  // Not after minutes of work.
  if (Status s = CheckOutputs(); !s.ok()) return out.Fail(s);
  const auto files = ReadTextFiles(texts_);
  if (!files.ok()) return out.Fail(files.status());
  auto engine_options = model_.ToEngineOptions();
  if (!engine_options.ok()) return out.Fail(engine_options.status());
  engine_options->activations = ActivationPrecision::kHigh;
  const auto engine = OpenEngine(*engine_options, interrupt);
  if (!engine.ok()) return out.Fail(engine.status());
  if (Status s = Search(**engine, *files, interrupt, &*report); !s.ok()) {
    return out.Fail(s);
  }

  out.Write(json_ ? DumpJson(TuneAsJson(*report)) : TuneAsText(*report));
  if (Status s = WriteOutputs(*report); !s.ok()) return out.Fail(s);
  if (!report->result.is_reached) PrintError(MissText(*report, yaml_));
  if (report->result.end == TuningResult::End::kInterrupted) {
    return ExitCode::kInterrupted;
  }
  return report->result.is_reached ? ExitCode::kDone : ExitCode::kFailed;
}

}  // namespace lkv::cli
