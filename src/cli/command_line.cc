#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable_text.h"
#include "cli/bench_verb.h"
#include "cli/chat_verb.h"
#include "cli/config_verb.h"
#include "cli/demo_verb.h"
#include "cli/help_formatter.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/run_verb.h"
#include "engine/admission.h"
#include "options/suggestion.h"

namespace lkv::cli {
namespace {

// The verb (or verb and sub-verb) that the words have reached, for messages.
const CLI::App& DeepestVerb(const CLI::App& app) {
  const auto verbs = app.get_subcommands();
  return verbs.empty() ? app : DeepestVerb(*verbs.front());
}

std::string PathOf(const CLI::App& verb) {
  if (verb.get_parent() == nullptr) return "lkv";
  return PathOf(*verb.get_parent()) + " " + verb.get_name();
}

// The first word that stands where a verb belongs and is none; empty when the
// error is of another kind.
std::string WrongVerb(const CLI::App& verb, const CLI::ParseError& error) {
  if (error.get_name() != "RequiredError") return {};
  const std::vector<std::string> words = verb.remaining();
  return words.empty() ? std::string() : words.front();
}

// CLI11's words, but for two that it says of every option alike.
std::string WordsOf(const CLI::ParseError& error) {
  const std::string words = error.what();
  constexpr std::string_view kTwice = ": At Most 1 required but received ";
  constexpr std::string_view kNoValue = ": 1 required ";
  if (const size_t at = words.find(kTwice); at != std::string::npos) {
    return words.substr(0, at) + ": given " + words.substr(at + kTwice.size()) +
           " times, give it once";
  }
  const size_t at = words.find(kNoValue);
  if (at != std::string::npos && words.ends_with(" missing")) {
    return words.substr(0, at) + ": stands without its value";
  }
  return words;
}

Status ExplainParseError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& verb = DeepestVerb(app);
  const std::string path = PathOf(verb);
  std::string thing = path == "lkv" ? "command line" : path.substr(4);
  const std::string wrong = WrongVerb(verb, error);
  if (wrong.empty()) {
    return InvalidArgument(thing + ": " + WordsOf(error) + "; " + path +
                           " -h shows what it takes");
  }
  std::vector<std::string> names;
  for (const CLI::App* sub : verb.get_subcommands({})) {
    names.push_back(sub->get_name());
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view nearest = NearestWord(wrong, known);
  return InvalidArgument(
      thing + ": unknown verb " + Quoted(wrong) + "; " +
      (nearest.empty() ? path + " -h lists them"
                       : "did you mean '" + std::string(nearest) + "'?"));
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
  ConfigVerb config;
  run.AddTo(app);
  chat.AddTo(app);
  demo.AddTo(app);
  bench.AddTo(app);
  config.AddTo(app);

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
