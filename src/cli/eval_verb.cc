#include "cli/eval_verb.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "base/printable_text.h"
#include "cli/eval_report.h"
#include "cli/exit_code.h"
#include "cli/long_generation_report.h"
#include "cli/open_engine.h"
#include "cli/recall_report.h"
#include "cli/text_files.h"
#include "options/budget_text.h"

namespace lkv::cli {
namespace {

// Collects what the suites found: as text, each as soon as it is there; as
// JSON, in one document at the end.
class Findings {
 public:
  Findings(Output& out, bool json) : out_(out), json_(json) {}

  void Add(const Json& fields, const std::string& text) {
    if (!json_) out_.Write((n_ > 0 ? "\n" : "") + text);
    document_.update(fields);
    ++n_;
  }
  bool empty() const { return n_ == 0; }
  void Finish(bool interrupted) {
    document_["interrupted"] = interrupted;
    if (json_) out_.Write(DumpJson(document_));
  }

 private:
  Output& out_;
  const bool json_;
  Json document_ = Json::object();
  uint32_t n_ = 0;
};

// Runs the suites of a plan one after the other.
class Suites {
 public:
  Suites(const EngineOptions& engine, const std::vector<TextFile>& files,
         Interrupt& interrupt, Findings& findings)
      : engine_options_(engine),
        files_(files),
        interrupt_(interrupt),
        findings_(findings) {}

  // Predictions are compared with 16-bit activations (eval/fidelity.h says
  // why); answers and long texts are those that users get.
  Status Run(const EvalPlan& plan) {
    if (plan.fidelity) {
      if (Status s = Open(ActivationPrecision::kHigh); !s.ok()) return s;
      if (Status s = Run(*plan.fidelity); !s.ok()) return s;
    }
    if (!plan.recall && !plan.generation) return {};
    if (Status s = Open(ActivationPrecision::kAuto); !s.ok()) return s;
    if (plan.recall) {
      if (Status s = Run(*plan.recall); !s.ok()) return s;
    }
    return plan.generation ? Run(*plan.generation) : Status();
  }

 private:
  using OnProgress = std::function<void(uint64_t, uint64_t)>;

  Status Open(ActivationPrecision activations) {
    engine_.reset();  // its memory is wanted
    engine_options_.activations = activations;
    auto engine = OpenEngine(engine_options_, interrupt_);
    if (!engine.ok()) return engine.status();
    engine_ = *std::move(engine);
    texts_ = Tokenize(engine_->tokenizer(), files_);
    return {};
  }

  // measure(progress) -> Result of something.
  template <typename Measure>
  auto WithProgress(std::string_view unit, const Measure& measure) {
    Progress progress("eval");
    return measure(OnProgress([&](uint64_t n_done, uint64_t n_all) {
      progress.Show(n_done, n_all, unit);
    }));
  }

  Status Run(const ClosedLoopOptions& options) {
    const auto report = WithProgress("runs", [&](const OnProgress& progress) {
      return RunClosedLoop(*engine_, texts_, options, progress, cancelled_);
    });
    if (!report.ok()) return report.status();
    findings_.Add(EvalAsJson(*report), EvalAsText(*report, options));
    if (report->interrupted) return Cancelled("eval: stopped on request");
    return {};
  }
  Status Run(const RecallOptions& options) {
    const auto report =
        WithProgress("contexts", [&](const OnProgress& progress) {
          return MeasureRecall(*engine_, options, progress, cancelled_);
        });
    if (!report.ok()) return report.status();
    findings_.Add(RecallAsJson(*report, options),
                  RecallAsText(*report, options));
    return {};
  }
  Status Run(const LongGenerationOptions& options) {
    const auto report = WithProgress("tokens", [&](const OnProgress& progress) {
      return MeasureLongGeneration(*engine_, texts_, options, progress,
                                   cancelled_);
    });
    if (!report.ok()) return report.status();
    findings_.Add(LongGenerationAsJson(*report, options),
                  LongGenerationAsText(*report, options));
    return {};
  }

  EngineOptions engine_options_;
  const std::vector<TextFile>& files_;
  Interrupt& interrupt_;
  Findings& findings_;
  const std::function<bool()> cancelled_ = [this] {
    return interrupt_.Requested();
  };
  std::unique_ptr<Engine> engine_;
  std::vector<TokenizedText> texts_;
};

}  // namespace

void EvalVerb::AddTo(CLI::App& app) {
  CLI::App* verb = app.add_subcommand(
      "eval", "Measure what budgets and policies change in the answers");
  model_.AddTo(*verb, ModelArguments::Offer::kThreads);
  AddList(*verb, "--suite", &suites_,
          "fidelity: predictions on given texts; recall: questions about made "
          "contexts; generation: long continuations of given texts; all "
          "[fidelity]");
  AddList(*verb, "-f,--file", &texts_,
          "Texts; fidelity takes windows from each, generation begins at "
          "their beginning");
  AddList(*verb, "--budget", &budgets_,
          "Budgets: shares of a window (25%), tokens (1024) or bytes (16MiB) "
          "[12.5%,25%]");
  AddList(*verb, "--policies", &policies_,
          "Policies, repeat among them, which has the context read twice "
          "[streaming,observed,snapkv,tova,random,lookahead]");
  verb->add_option("--context", context_tokens_,
                   "Tokens that are read as a prompt [fidelity 3072, recall "
                   "2400, generation 256]")
      ->type_name("N")
      ->check(WholeNumber(1, 1u << 20));
  AddNumber(*verb, "--windows", &n_windows_, 1, 1000,
            "fidelity: windows of each text");
  AddNumber(*verb, "--forced", &forced_tokens_, 1, 1u << 16,
            "fidelity: tokens of a window that are fed one by one and "
            "compared");
  verb->add_option(
          "--continuation", continuation_,
          "fidelity: what these tokens are; next: what follows in the text; "
          "replay: the context's own from its first third on, once more "
          "[next]")
      ->type_name("WHAT")
      ->check(OneOf({"next", "replay"}));
  AddList(*verb, "--tasks", &tasks_,
          "recall: needle, multikey, variable, facts, repetition, dialogue "
          "[all]");
  AddNumber(*verb, "--examples", &n_examples_, 1, 10000,
            "recall: contexts of each task");
  AddNumber(*verb, "--generate", &new_tokens_, 1, 1u << 20,
            "generation: tokens that are written behind each text");
  verb->add_option("--read", reading_,
                   "fidelity, recall: whole: the context is cut down once it "
                   "has been read; budget: it is read within the budget [key "
                   "read where it is set, else whole]")
      ->type_name("HOW")
      ->check(OneOf({"whole", "budget"}));
  verb->add_option(
          "--budget-of", budget_scope_,
          "fidelity: window: budgets are shares of a window and hold while "
          "tokens are fed; context: of the context, and what is fed "
          "comes on top [window]")
      ->type_name("WHAT")
      ->check(OneOf({"window", "context"}));
  verb->add_option(
          "--observe", seen_queries_,
          "fidelity: queries of the context that policies see; sampled: every "
          "8th and the newest, as in use; all: slower [sampled]")
      ->type_name("WHICH")
      ->check(OneOf({"sampled", "all"}));
  verb->add_option("--tiers", tiers_,
                   "Whether what leaves stays within reach in a coarser form "
                   "[key tiers.enabled]")
      ->type_name("on|off")
      ->check(OneOf({"on", "off"}));
  config_.AddTo(*verb, ConfigArguments::Offer::kKvType);
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "KL: mean of KL(full || policy) in nats, activations of 16 bits in the\n"
      "suite fidelity. Intervals are over windows and contexts; \"KL to best "
      "other\"\n"
      "compares with the best other policy at that budget, lookahead and "
      "repeat\n"
      "left out, on the same windows. held, read: bytes of KV held, and read "
      "by\n"
      "attention for a token, as shares of what keeping everything takes.\n"
      "Contexts and what is drawn come from the key seed.\n\n"
      "Examples:\n"
      "  lkv eval -f novel.txt,code.h --budget 25% --policies lru,lookahead\n"
      "  lkv eval --suite recall --budget 12.5%,25%\n"
      "  lkv eval --suite generation -f novel.txt --budget 1024 --generate "
      "6000");
}

Result<std::vector<Budget>> EvalVerb::ReadBudgets() const {
  std::vector<Budget> budgets;
  for (const std::string& text : budgets_) {
    const Result<Budget> budget = ParseBudget(text);
    if (!budget.ok()) {
      return InvalidArgument("--budget: " +
                             std::string(budget.status().message()));
    }
    if (budget->kind == Budget::Kind::kFull) {
      return InvalidArgument(
          "--budget: full evicts nothing and is measured anyway; give a share, "
          "tokens or bytes");
    }
    budgets.push_back(*budget);
  }
  return budgets;
}

Result<std::vector<RecallTask>> EvalVerb::ReadTasks() const {
  const std::span<const RecallTask> all = AllRecallTasks();
  if (tasks_.empty()) return std::vector(all.begin(), all.end());
  std::vector<RecallTask> tasks;
  for (const std::string& name : tasks_) {
    const std::optional<RecallTask> task = FindRecallTask(name);
    if (!task) {
      std::string known;
      for (RecallTask one : all) {
        known += (known.empty() ? "" : " | ") + std::string(NameOf(one));
      }
      return InvalidArgument("--tasks: " + Quoted(name) + " is none of " +
                             known);
    }
    tasks.push_back(*task);
  }
  return tasks;
}

bool EvalVerb::Measures(std::string_view suite) const {
  return std::any_of(
      suites_.begin(), suites_.end(),
      [&](const std::string& name) { return name == suite || name == "all"; });
}

Result<EvalPlan> EvalVerb::ReadPlan() const {
  const CLI::Validator is_suite =
      OneOf({"fidelity", "recall", "generation", "all"});
  for (const std::string& name : suites_) {
    const std::string problem = is_suite(name);
    if (!problem.empty()) return InvalidArgument("--suite: " + problem);
  }
  const auto configuration = config_.Load();
  if (!configuration.ok()) return configuration.status();
  const auto budgets = ReadBudgets();
  if (!budgets.ok()) return budgets.status();
  const auto tasks = ReadTasks();
  if (!tasks.ok()) return tasks.status();
  CacheOptions cache = configuration->cache();
  if (tiers_) cache.tiers = *tiers_ == "on";
  // What is measured is what policies keep of a text, so texts are read whole
  // unless somebody wants them otherwise.
  PromptReading reading = PromptReading::kWhole;
  if (configuration->IsSet("read")) reading = cache.reading;
  if (reading_) {
    reading = *reading_ == "whole" ? PromptReading::kWhole
                                   : PromptReading::kWithinBudget;
  }
  if (Status s = ReadingPoliciesOf(policies_, cache, reading).status();
      (Measures("fidelity") || Measures("recall")) && !s.ok()) {
    return s;
  }
  EvalPlan plan;
  if (Measures("fidelity")) {
    ClosedLoopOptions& fidelity = plan.fidelity.emplace();
    fidelity.policies = policies_;
    fidelity.budgets = *budgets;
    fidelity.context_tokens = context_tokens_.value_or(fidelity.context_tokens);
    fidelity.forced_tokens = forced_tokens_;
    fidelity.continuation =
        continuation_ == "replay" ? Continuation::kReplay : Continuation::kNext;
    fidelity.windows_per_text = n_windows_;
    fidelity.reading = reading;
    fidelity.budget_scope = budget_scope_ == "window" ? BudgetScope::kWindow
                                                      : BudgetScope::kContext;
    fidelity.seen_queries =
        seen_queries_ == "all" ? SeenQueries::kAll : SeenQueries::kSampled;
    fidelity.cache = cache;
  }
  if (Measures("recall")) {
    RecallOptions& recall = plan.recall.emplace();
    recall.tasks = *tasks;
    recall.policies = policies_;
    recall.budgets = *budgets;
    recall.context_tokens = context_tokens_.value_or(recall.context_tokens);
    recall.contexts_per_task = n_examples_;
    recall.reading = reading;
    recall.seed = cache.seed;
    recall.cache = cache;
  }
  if (Measures("generation")) {
    LongGenerationOptions& generation = plan.generation.emplace();
    generation.policies = policies_;
    generation.budgets = *budgets;
    generation.prompt_tokens =
        context_tokens_.value_or(generation.prompt_tokens);
    generation.new_tokens = new_tokens_;
    generation.seed = static_cast<uint32_t>(cache.seed);
    generation.cache = cache;
    if (Status s = CheckPolicies(generation); !s.ok()) return s;
  }
  if (plan.NeedsTexts() && texts_.empty()) {
    return InvalidArgument(
        "--file: is missing; fidelity and generation measure on texts, name "
        "one");
  }
  return plan;
}

ExitCode EvalVerb::Run(Output& out, Interrupt& interrupt) const {
  const auto plan = ReadPlan();
  if (!plan.ok()) return out.Fail(plan.status());
  const auto files = ReadTextFiles(texts_);
  if (!files.ok()) return out.Fail(files.status());
  const auto engine_options = model_.ToEngineOptions();
  if (!engine_options.ok()) return out.Fail(engine_options.status());
  Findings findings(out, json_);
  const Status status =
      Suites(*engine_options, *files, interrupt, findings).Run(*plan);
  // What was measured is worth having, whatever came after it.
  const bool interrupted = status.code() == StatusCode::kCancelled;
  if (!findings.empty()) findings.Finish(interrupted);
  if (status.ok()) return ExitCode::kDone;
  if (interrupted && !findings.empty()) {
    if (!json_) PrintError("interrupted; what was finished stands above");
    return ExitCode::kInterrupted;
  }
  return out.Fail(status);
}

}  // namespace lkv::cli
