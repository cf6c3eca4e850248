#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench_verb.h"
#include "cli/chat_verb.h"
#include "cli/config_verb.h"
#include "cli/demo_verb.h"
#include "cli/eval_verb.h"
#include "cli/help_formatter.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/parse_error.h"
#include "cli/run_verb.h"
#include "cli/session_verb.h"
#include "cli/trace_verb.h"
#include "cli/train_verb.h"
#include "cli/tune_verb.h"
#include "engine/admission.h"

namespace lkv::cli {
namespace {

// A flag is given or not: --json=false would mean one thing here and another
// to whoever looks for the bare word.
void RefuseValuesOfFlags(CLI::App& verb) {
  for (CLI::Option* option : verb.get_options()) {
    if (option->get_expected_max() == 0) option->disable_flag_override();
  }
  for (CLI::App* sub : verb.get_subcommands({})) RefuseValuesOfFlags(*sub);
}

// From the bare words: one that cannot be parsed may stand before --json.
OutputFormat FormatOf(const std::vector<std::string_view>& words) {
  return std::find(words.begin(), words.end(), "--json") == words.end()
             ? OutputFormat::kText
             : OutputFormat::kJson;
}

}  // namespace

ExitCode RunCommandLine(int argc, const char* const* argv) {
  CLI::App app(
      "lkv runs a language model whose KV cache stays inside a budget by\n"
      "predicting which tokens will be attended to.");
  app.name("lkv");
  app.set_version_flag("--version", "lkv " LKV_VERSION);
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  app.footer(
      "Exit codes:\n"
      "  0 done, 1 failed while working or stdout was closed, 2 wrong use or\n"
      "  configuration, 3 file, model or permission missing, 130 Ctrl-C\n\n"
      "Example:\n"
      "  lkv run --budget 25% -f long.txt -n 128");

  RunVerb run;
  ChatVerb chat;
  DemoVerb demo;
  BenchVerb bench;
  EvalVerb eval;
  TraceVerb trace;
  TrainVerb train;
  TuneVerb tune;
  SessionVerb session;
  ConfigVerb config;
  run.AddTo(app);
  chat.AddTo(app);
  demo.AddTo(app);
  bench.AddTo(app);
  eval.AddTo(app);
  trace.AddTo(app);
  train.AddTo(app);
  tune.AddTo(app);
  session.AddTo(app);
  config.AddTo(app);
  RefuseValuesOfFlags(app);

  Interrupt interrupt;
  Output out(FormatOf({argv, argv + argc}), interrupt);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const CLI::App& verb = DeepestVerb(app);
    const CLI::App* parent = verb.get_parent();
    out.Write(verb.help(parent == nullptr ? "" : PathOf(*parent)));
    return out.Finish(ExitCode::kDone);
  } catch (const CLI::CallForVersion& version) {
    out.Write(std::string(version.what()) + "\n");
    return out.Finish(ExitCode::kDone);
  } catch (const CLI::ParseError& error) {
    return out.Finish(out.Fail(ExplainParseError(app, error)));
  }
  const auto run_verb = [&] {
    if (app.got_subcommand("run")) return run.Run(out, interrupt);
    if (app.got_subcommand("chat")) return chat.Run(out, interrupt);
    if (app.got_subcommand("demo")) return demo.Run(out, interrupt);
    if (app.got_subcommand("bench")) return bench.Run(out, interrupt);
    if (app.got_subcommand("eval")) return eval.Run(out, interrupt);
    if (app.got_subcommand("trace")) return trace.Run(out, interrupt);
    if (app.got_subcommand("train")) return train.Run(out, interrupt);
    if (app.got_subcommand("tune")) return tune.Run(out, interrupt);
    if (app.got_subcommand("session")) return session.Run(out);
    return config.Run(out);
  };
  // The engine reports a lack of memory as a Status; a verb's own arrays and
  // measurements end here.
  try {
    return out.Finish(run_verb());
  } catch (const std::bad_alloc& refusal) {
    return out.Finish(out.Fail(RefusedMemory("out of memory", refusal)));
  }
}

}  // namespace lkv::cli
