#include "cli/demo_verb.h"

#include <utility>

#include "cli/demo_report.h"
#include "cli/json_document.h"
#include "cli/open_engine.h"
#include "cli/prompt_arguments.h"
#include "options/budget_text.h"
#include "options/option_table.h"

namespace lkv::cli {

void DemoVerb::AddTo(CLI::App& app) {
  CLI::App* verb = app.add_subcommand(
      "demo", "Show on one text what a KV budget costs and saves");
  model_.AddTo(*verb, ModelArguments::Offer::kThreads);
  verb->add_option("--budget", budget_,
                   "Budget of every row but the first [25%]: " +
                       std::string(kBudgetForms))
      ->type_name("SIZE");
  verb->add_option("--policies", policies_,
                   "Rows below the full cache [lru,lookahead]")
      ->delimiter(',')
      ->type_name("LIST")
      ->allow_extra_args(false);
  verb->add_option("--context", context_tokens_,
                   "Tokens of the text that are read as a prompt [4096]")
      ->type_name("N")
      ->check(CLI::Range(1u, 1u << 24));
  auto* file = verb->add_option("-f,--file", text_file_,
                                "Another text; then no question is asked")
                   ->type_name("FILE")
                   ->check(NamesSomething());
  verb->add_flag("--source-table", source_table_,
                 "The conditions of the source document's comparison: 1,024 "
                 "tokens in, 2,048 out")
      ->excludes(file);
  config_.AddTo(*verb, ConfigArguments::Offer::kFileOnly);
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "Activations are 16 bit throughout, because 8 bit would drown what a\n"
      "policy changes.\n\n"
      "Example:\n"
      "  lkv demo --budget 12.5%\n"
      "  lkv demo -f novel.txt --policies lru,streaming,random,lookahead");
}

Result<DemoOptions> DemoVerb::ReadOptions() const {
  auto configuration = config_.Load();
  if (!configuration.ok()) return configuration.status();
  const auto budget = ParseBudget(budget_);
  if (!budget.ok()) {
    return InvalidArgument("--budget: " +
                           std::string(budget.status().message()));
  }
  DemoOptions options = source_table_ ? SourceTableOptions() : DemoOptions();
  options.cache = configuration->cache();
  options.cache.budget = *budget;
  if (context_tokens_) options.context_tokens = *context_tokens_;
  if (!policies_.empty()) options.policies.clear();
  for (const std::string& name : policies_) {
    CacheOptions named;
    const Status s = SetOption(*FindOption("policy"), name, &named);
    if (!s.ok())
      return InvalidArgument("--policies: " + std::string(s.message()));
    options.policies.push_back(named.policy);
  }
  if (text_file_) {
    auto text = ReadWholeFile(*text_file_);
    if (!text.ok()) return text.status();
    options.text = std::move(*text);
    options.question.clear();
  }
  return options;
}

ExitCode DemoVerb::Run(Output& out, Interrupt& interrupt) const {
  const auto options = ReadOptions();
  if (!options.ok()) return out.Fail(options.status());
  auto engine_options = model_.ToEngineOptions();
  if (!engine_options.ok()) return out.Fail(engine_options.status());
  engine_options->activations = ActivationPrecision::kHigh;
  const auto engine = OpenEngine(*engine_options, interrupt);
  if (!engine.ok()) return out.Fail(engine.status());

  Progress progress("demo");
  const auto report = RunDemo(
      **engine, *options, [&](std::string_view what) { progress.Show(what); },
      [&] { return interrupt.Requested(); });
  progress.Erase();
  if (!report.ok()) return out.Fail(report.status());
  out.Write(json_ ? DumpJson(DemoAsJson(*report, *options))
                  : DemoAsText(*report, *options));
  return ExitCode::kDone;
}

}  // namespace lkv::cli
