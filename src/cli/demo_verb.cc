#include "cli/demo_verb.h"

#include <utility>

#include "cli/demo_report.h"
#include "cli/exit_code.h"
#include "cli/json_document.h"
#include "cli/number_text.h"
#include "cli/open_engine.h"
#include "cli/prompt_arguments.h"
#include "cli/source_table_report.h"
#include "eval/source_table.h"
#include "options/budget_text.h"
#include "options/policy_text.h"

namespace lkv::cli {

void DemoVerb::AddTo(CLI::App& app) {
  CLI::App* verb = app.add_subcommand(
      "demo", "Show on one text what a KV budget costs and saves");
  model_.AddTo(*verb, ModelArguments::Offer::kThreads);
  verb->add_option("--budget", budget_,
                   "Budget of every row but the first [the configuration's, "
                   "else 25%, with --source-table 35 % of weights and KV "
                   "less]: " +
                       std::string(kBudgetForms))
      ->type_name("SIZE");
  AddList(*verb, "--policies", &policies_,
          "Rows below the full cache [lru,lookahead]");
  verb->add_option("--context", context_tokens_,
                   "Tokens of the text that are read as a prompt [4096]")
      ->type_name("N")
      ->check(WholeNumber(1, 1u << 24));
  auto* file = verb->add_option("-f,--file", text_file_,
                                "Another text; then no question is asked")
                   ->type_name("FILE")
                   ->check(NamesSomething());
  verb->add_flag(
          "--source-table", source_table_,
          "The conditions of a comparison in the design sketch that "
          "this project grew out of: 1,024 tokens in, 2,048 out, 35 % of "
          "weights and KV saved")
      ->excludes(file);
  config_.AddTo(*verb, ConfigArguments::Offer::kKvType);
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "Activations are 16 bit throughout, because 8 bit would drown what a\n"
      "policy changes.\n\n"
      "Example:\n"
      "  lkv demo --budget 12.5%\n"
      "  lkv demo -f novel.txt --policies lru,streaming,random,lookahead");
}

Result<DemoOptions> DemoVerb::ReadOptions(
    const Configuration& configuration) const {
  DemoOptions options = source_table_ ? SourceTableOptions() : DemoOptions();
  options.cache = configuration.cache();
  if (budget_ || !configuration.IsSet("budget")) {
    const auto budget = ParseBudget(budget_.value_or("25%"));
    if (!budget.ok()) {
      return InvalidArgument("--budget: " +
                             std::string(budget.status().message()));
    }
    options.cache.budget = *budget;
  }
  if (context_tokens_) options.context_tokens = *context_tokens_;
  if (!policies_.empty()) {
    options.policies.clear();
    options.shows_whole_reading = false;
  }
  for (const std::string& name : policies_) {
    const auto policy = ParsePolicy(name);
    if (!policy.ok()) {
      return InvalidArgument("--policies: " +
                             std::string(policy.status().message()));
    }
    options.policies.push_back(*policy);
  }
  if (text_file_) {
    auto text = ReadWholeFile(*text_file_);
    if (!text.ok()) return text.status();
    options.text = std::move(*text);
    options.question.clear();
  }
  return options;
}

// Shortens what is read as a prompt to what the model can hold with the tokens
// that follow, and says so.
Status DemoVerb::FitIntoTrained(uint32_t trained_tokens,
                                DemoOptions* options) const {
  const uint32_t forced = options->forced_tokens;
  if (trained_tokens <= forced) {
    return InvalidArgument("demo: needs more than " + FormatCount(forced) +
                           " tokens, but the model was trained for " +
                           FormatCount(trained_tokens) +
                           "; choose a model for longer texts");
  }
  const uint32_t most = trained_tokens - forced;
  if (options->context_tokens <= most) return {};
  PrintError("demo: the model was trained for " + FormatCount(trained_tokens) +
             " tokens, so " + FormatCount(most) + " are read instead of " +
             FormatCount(options->context_tokens) + ", and " +
             FormatCount(forced) + " follow");
  options->context_tokens = most;
  return {};
}

ExitCode DemoVerb::Run(Output& out, Interrupt& interrupt) const {
  const auto configuration = config_.Load();
  if (!configuration.ok()) return out.Fail(configuration.status());
  auto options = ReadOptions(*configuration);
  if (!options.ok()) return out.Fail(options.status());
  auto engine_options = model_.ToEngineOptions();
  if (!engine_options.ok()) return out.Fail(engine_options.status());
  engine_options->activations = ActivationPrecision::kHigh;
  const auto engine = OpenEngine(*engine_options, interrupt);
  if (!engine.ok()) return out.Fail(engine.status());

  const uint32_t trained = (*engine)->architecture().trained_context_tokens;
  if (Status s = FitIntoTrained(trained, &*options); !s.ok()) {
    return out.Fail(s);
  }

  if (source_table_ && !NamesBudget(*configuration)) {
    const uint64_t kv_bytes =
        uint64_t{options->context_tokens + options->forced_tokens} *
        (*engine)->architecture().kv_shape().bytes_per_token(
            KvTypeOf(options->cache));
    const auto budget = BudgetThatSaves(SourceClaims::kSavedMemory,
                                        (*engine)->weight_bytes(), kv_bytes);
    if (!budget.ok()) return out.Fail(budget.status());
    options->cache.budget = *budget;
  }

  Progress progress("demo");
  const auto report = RunDemo(
      **engine, *options,
      [&](const DemoProgress& now) {
        progress.Show(now.done_tokens, now.total_tokens, now.what);
      },
      [&] { return interrupt.Requested(); });
  progress.Erase();
  if (!report.ok()) return out.Fail(report.status());
  if (report->context_tokens < options->context_tokens) {
    PrintError("demo: the text is shorter than " +
               FormatCount(options->context_tokens) + " and " +
               FormatCount(options->forced_tokens) + " tokens, so " +
               FormatCount(report->context_tokens) + " are read and " +
               FormatCount(report->forced_tokens) + " follow");
  }
  if (source_table_) {
    out.Write(json_ ? DumpJson(SourceTableAsJson(*report, *options))
                    : SourceTableAsText(*report, *options));
  } else {
    out.Write(json_ ? DumpJson(DemoAsJson(*report, *options))
                    : DemoAsText(*report, *options));
  }
  return ExitCode::kDone;
}

}  // namespace lkv::cli
