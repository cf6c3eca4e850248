#include "cli/eval_verb.h"

#include <utility>

#include "cli/eval_report.h"
#include "cli/open_engine.h"
#include "cli/prompt_arguments.h"

namespace lkv::cli {

void EvalVerb::AddTo(CLI::App& app) {
  CLI::App* verb = app.add_subcommand(
      "eval", "Measure what budgets and policies change in the predictions");
  model_.AddTo(*verb, ModelArguments::Offer::kThreads);
  AddList(*verb, "-f,--file", &texts_, "Texts; windows are taken from each")
      ->required();
  AddList(*verb, "--budget", &budgets_,
          "Shares of a window that stay [12.5%,25%]");
  AddList(*verb, "--policies", &policies_,
          "Policies, repeat among them, which has the context read twice "
          "[streaming,observed,snapkv,tova,random,lookahead]");
  AddNumber(*verb, "--windows", &n_windows_, 1, 1000, "Windows of each text");
  AddNumber(*verb, "--context", &context_tokens_, 1, 1u << 20,
            "Tokens of a window that are read as a prompt");
  AddNumber(*verb, "--forced", &forced_tokens_, 1, 1u << 16,
            "Tokens of a window that are fed one by one and compared");
  verb->add_option("--read", reading_,
                   "whole: the context is cut down once it has been read; "
                   "budget: it is read within the budget [whole]")
      ->type_name("HOW")
      ->check(OneOf({"whole", "budget"}));
  verb->add_option("--budget-of", budget_scope_,
                   "window: budgets are shares of a window and hold while "
                   "tokens are fed; context: of the context, and what is fed "
                   "comes on top [window]")
      ->type_name("WHAT")
      ->check(OneOf({"window", "context"}));
  verb->add_option("--observe", seen_queries_,
                   "Queries of the context that policies see; sampled: every "
                   "8th and the newest, as in use; all: slower [sampled]")
      ->type_name("WHICH")
      ->check(OneOf({"sampled", "all"}));
  config_.AddTo(*verb, ConfigArguments::Offer::kKvType);
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "Activations are 16 bit throughout. KL: mean of KL(full || policy) in\n"
      "nats. Intervals are over windows; \"KL to best other\" compares with "
      "the\n"
      "best other policy at that budget, lookahead and repeat left out, on "
      "the\n"
      "same windows.\n\n"
      "Example:\n"
      "  lkv eval -f novel.txt,code.h --budget 25% --policies lru,lookahead");
}

Result<ClosedLoopOptions> EvalVerb::ReadOptions() const {
  auto configuration = config_.Load();
  if (!configuration.ok()) return configuration.status();
  ClosedLoopOptions options;
  options.cache = configuration->cache();
  options.policies = policies_;
  auto budgets = ReadShares("--budget", budgets_);
  if (!budgets.ok()) return budgets.status();
  options.budgets = *std::move(budgets);
  options.context_tokens = context_tokens_;
  options.forced_tokens = forced_tokens_;
  options.windows_per_text = n_windows_;
  options.reading = reading_ == "whole" ? ContextReading::kWhole
                                        : ContextReading::kWithinBudget;
  options.budget_scope =
      budget_scope_ == "window" ? BudgetScope::kWindow : BudgetScope::kContext;
  options.seen_queries =
      seen_queries_ == "all" ? SeenQueries::kAll : SeenQueries::kSampled;
  return options;
}

ExitCode EvalVerb::Run(Output& out, Interrupt& interrupt) const {
  const auto options = ReadOptions();
  if (!options.ok()) return out.Fail(options.status());
  std::vector<std::string> contents;
  for (const std::string& path : texts_) {
    auto text = ReadWholeFile(path);
    if (!text.ok()) return out.Fail(text.status());
    contents.push_back(*std::move(text));
  }
  auto engine_options = model_.ToEngineOptions();
  if (!engine_options.ok()) return out.Fail(engine_options.status());
  engine_options->activations = ActivationPrecision::kHigh;
  const auto engine = OpenEngine(*engine_options, interrupt);
  if (!engine.ok()) return out.Fail(engine.status());

  std::vector<ClosedLoopText> texts;
  for (size_t i = 0; i < texts_.size(); ++i) {
    texts.push_back({texts_[i], (*engine)->tokenizer().Tokenize(
                                    contents[i], Tokenizer::Start::kAsTrained,
                                    Tokenizer::Special::kAsText)});
  }
  Progress progress("eval");
  const auto report = RunClosedLoop(
      **engine, texts, *options,
      [&](uint64_t n_done, uint64_t n_all) {
        progress.Show(n_done, n_all, "runs");
      },
      [&] { return interrupt.Requested(); });
  progress.Erase();
  if (!report.ok()) return out.Fail(report.status());
  out.Write(json_ ? DumpJson(EvalAsJson(*report))
                  : EvalAsText(*report, *options));
  return ExitCode::kDone;
}

}  // namespace lkv::cli
