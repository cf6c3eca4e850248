#include "cli/trace_verb.h"

#include <algorithm>
#include <utility>

#include "base/byte_text.h"
#include "cli/file_arguments.h"
#include "cli/json_document.h"
#include "cli/number_text.h"
#include "cli/open_engine.h"
#include "cli/prompt_arguments.h"
#include "eval/trace_recording.h"
#include "trace/trace_reader.h"

namespace lkv::cli {
namespace {

Json InfoAsJson(const TraceReader& trace) {
  const TraceInfo& info = trace.info();
  return {{"sequences", 1},           {"tokens", trace.n_steps()},
          {"layers", info.layers},    {"kv_heads", info.shape.n_kv_heads},
          {"bytes", trace.n_bytes()}, {"model", info.model},
          {"text", info.text},        {"reread", trace.has_reread()}};
}

std::string InfoAsText(const TraceReader& trace) {
  const TraceInfo& info = trace.info();
  return FormatCount(trace.n_steps(), "token") + " of " + info.text + "\n" +
         FormatCount(info.layers.size(), "layer") + " of " +
         std::to_string(info.shape.n_layers) + ", " +
         FormatCount(info.shape.n_kv_heads, "KV head") +
         " each: " + FormatCount(info.n_lanes(), "lane") + "\n" +
         (trace.has_reread() ? "with a second reading\n" : "") + "model " +
         info.model.substr(0, 16) + "\n" + FormatBytes(trace.n_bytes()) + "\n";
}

}  // namespace

void TraceVerb::AddTo(CLI::App& app) {
  CLI::App* verb = app.add_subcommand(
      "trace", "Record what a text attends to, to replay policies on it");
  verb->require_subcommand(1);
  verb->footer("Example:\n  lkv trace record -f novel.txt -o novel.trace");

  CLI::App* record = verb->add_subcommand(
      "record", "Read a text under the full cache and write its attention");
  model_.AddTo(*record, ModelArguments::Offer::kThreads);
  record->add_option("-f,--file", text_file_, "The text; - reads stdin")
      ->type_name("FILE")
      ->required()
      ->check(NamesSomething());
  record->add_option("-o,--output", trace_file_, "The trace")
      ->type_name("FILE")
      ->required()
      ->check(NamesSomething());
  record
      ->add_option("--steps", n_steps_,
                   "Tokens of the text; default: all that the model holds")
      ->type_name("N")
      ->check(WholeNumber(1, kMaxTraceSteps));
  AddList(*record, "--layers", &layers_, 0, 4095,
          "Layers to record, ascending; default: all");
  record->add_flag("--reread", reread_,
                   "Have the model read the text a second time and record "
                   "what it looks at then; lkv train learns from that");
  record->add_flag("--json", json_, "Print one JSON document");
  record->footer(
      "Activations are 16 bit. 4,096 tokens of 90 lanes (layers times KV\n"
      "heads) take 476 MB; bytes grow with the square of the tokens.\n\n"
      "Example:\n"
      "  lkv trace record -f novel.txt --steps 2048 -o novel.trace");

  CLI::App* synth = verb->add_subcommand(
      "synth", "Make a trace with known truth, without a model");
  synth->add_option("-o,--output", trace_file_, "The trace")
      ->type_name("FILE")
      ->required()
      ->check(NamesSomething());
  AddNumber(*synth, "--steps", &synthetic_.n_steps, 1, kMaxTraceSteps,
            "Tokens of the text");
  AddNumber(*synth, "--layers", &synthetic_.n_layers, 1, 1024, "Layers");
  AddNumber(*synth, "--topic", &synthetic_.topic_tokens, 0, kMaxTraceSteps,
            "A new topic begins every so many tokens; 0: never");
  AddNumber(*synth, "--needles", &synthetic_.n_needles, 0, 1024,
            "Tokens that are asked for once, much later");
  AddNumber(*synth, "--repeat", &synthetic_.block_tokens, 0, kMaxTraceSteps,
            "The text repeats its first so many tokens; 0: it does not");
  synth
      ->add_option("--seed", synthetic_.seed,
                   "Seed of the weights of its tokens [1]")
      ->type_name("N")
      ->check(WholeNumber(0, kMostSeed));
  synth->add_flag("--json", json_, "Print one JSON document");
  synth->footer("Example:\n  lkv trace synth --topic 256 -o topics.trace");

  CLI::App* info = verb->add_subcommand("info", "Say what a trace holds");
  info->add_option("file", trace_file_, "The trace")
      ->type_name("FILE")
      ->required();
  info->add_flag("--json", json_, "Print one JSON document");
  info->footer("Example:\n  lkv trace info novel.trace");
  verb_ = verb;
}

ExitCode TraceVerb::Run(Output& out, Interrupt& interrupt) const {
  if (verb_->got_subcommand("record")) return Record(out, interrupt);
  if (verb_->got_subcommand("synth")) return Synthesize(out);
  return ShowInfo(out);
}

ExitCode TraceVerb::Record(Output& out, Interrupt& interrupt) const {
  const auto text = ReadWholeFile(text_file_);
  if (!text.ok()) return out.Fail(text.status());
  if (Status s = CheckNotAnInput(trace_file_, {&text_file_, 1}); !s.ok()) {
    return out.Fail(s);
  }
  auto engine_options = model_.ToEngineOptions();
  if (!engine_options.ok()) return out.Fail(engine_options.status());
  engine_options->activations = ActivationPrecision::kHigh;
  const auto engine = OpenEngine(*engine_options, interrupt);
  if (!engine.ok()) return out.Fail(engine.status());

  std::vector<int32_t> tokens = (*engine)->tokenizer().Tokenize(
      *text, Tokenizer::Start::kAsTrained, Tokenizer::Special::kAsText);
  const size_t most =
      n_steps_.value_or((*engine)->architecture().trained_context_tokens);
  if (tokens.size() > most) tokens.resize(most);
  Progress progress("trace");
  const auto recorded = RecordTrace(
      LocalFileSystem(), **engine, tokens,
      {.path = trace_file_,
       .text = text_file_,
       .layers = layers_,
       .reread = reread_},
      [&](uint32_t n_done) { progress.Show(n_done, tokens.size()); },
      [&] { return interrupt.Requested(); });
  progress.Erase();
  if (!recorded.ok()) return out.Fail(recorded.status());
  return ShowInfo(out);
}

ExitCode TraceVerb::Synthesize(Output& out) const {
  const Status written =
      WriteSyntheticTrace(LocalFileSystem(), trace_file_, synthetic_);
  return written.ok() ? ShowInfo(out) : out.Fail(written);
}

ExitCode TraceVerb::ShowInfo(Output& out) const {
  const auto trace = TraceReader::Open(LocalFileSystem(), trace_file_);
  if (!trace.ok()) return out.Fail(trace.status());
  out.Write(json_ ? DumpJson(InfoAsJson(*trace)) : InfoAsText(*trace));
  return ExitCode::kDone;
}

}  // namespace lkv::cli
