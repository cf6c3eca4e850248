#include "cli/bench_sessions_verb.h"

#include <string>
#include <vector>

#include "base/byte_text.h"
#include "cli/json_document.h"
#include "cli/number_text.h"
#include "cli/open_engine.h"
#include "cli/text_table.h"
#include "eval/demo.h"
#include "eval/session_speed.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

std::string PathText(ReadPath path) {
  switch (path) {
    case ReadPath::kUnknown:
      return "unknown";
    case ReadPath::kDirect:
      return "direct";
    case ReadPath::kBuffered:
      return "buffered";
  }
  return {};
}

Json SecondsAsJson(const SessionSpeedRow::Seconds& seconds) {
  return {
      {"median", seconds.median}, {"min", seconds.min}, {"max", seconds.max}};
}

Json RowAsJson(const SessionSpeedRow& row) {
  return {{"tokens", row.n_tokens},
          {"bytes", row.n_bytes},
          {"read_path", PathText(row.read_path)},
          {"read_seconds", SecondsAsJson(row.read)},
          {"save_seconds", SecondsAsJson(row.save)},
          {"restore_seconds", SecondsAsJson(row.restore)},
          {"ratio", SecondsAsJson(row.ratio)},
          {"same_logits", row.is_same}};
}

std::string RowsAsText(const std::vector<SessionSpeedRow>& rows) {
  TextTable table({{"tokens", Align::kRight},
                   {"session", Align::kRight},
                   {"reading it", Align::kRight},
                   {"keeping it", Align::kRight},
                   {"restoring it", Align::kRight},
                   {"times faster", Align::kRight},
                   {"min .. max", Align::kRight},
                   {"from disk"},
                   {"next logits"}});
  for (const SessionSpeedRow& row : rows) {
    table.AddRow(
        {FormatCount(row.n_tokens), FormatBytes(row.n_bytes),
         FormatSeconds(row.read.median), FormatSeconds(row.save.median),
         FormatSeconds(row.restore.median), FormatFixed(row.ratio.median, 1),
         FormatFixed(row.ratio.min, 1) + " .. " + FormatFixed(row.ratio.max, 1),
         PathText(row.read_path), row.is_same ? "same" : "differ"});
  }
  return table.Print(TextTable::kNoWrap);
}

}  // namespace

void BenchSessionsVerb::AddTo(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "sessions", "Restoring a text from its session, against reading it");
  model_.AddTo(*verb, ModelArguments::Offer::kPrecision);
  AddList(*verb, "--tokens", &lengths_, 64, 1u << 20,
          "Lengths of the text [2048,8192]");
  AddNumber(*verb, "--rounds", &n_rounds_, 1, 1000, "Rounds of each length");
  config_.AddTo(*verb, ConfigArguments::Offer::kAll);
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "Each round reads a text, keeps it, drives the file out of the page "
      "cache\n"
      "and restores it; ratios are of one round each. It takes disk space of\n"
      "one session in sessions.path.\n\n"
      "Example:\n"
      "  lkv bench sessions --policy full");
}

ExitCode BenchSessionsVerb::Run(Output& out, Interrupt& interrupt) const {
  const auto configuration = config_.Load();
  if (!configuration.ok()) return out.Fail(configuration.status());
  auto engine_options = model_.ToEngineOptions();
  if (!engine_options.ok()) return out.Fail(engine_options.status());
  // Speed does not depend on what the model makes of the positions.
  engine_options->allow_beyond_trained = true;
  const auto engine = OpenEngine(*engine_options, interrupt);
  if (!engine.ok()) return out.Fail(engine.status());
  SessionSpeedOptions options;
  options.lengths = lengths_;
  options.n_rounds = n_rounds_;
  options.cache = configuration->cache();
  options.text = (*engine)->tokenizer().Tokenize(
      DemoText(), Tokenizer::Start::kAsTrained, Tokenizer::Special::kAsText);

  std::vector<SessionSpeedRow> rows;
  Progress progress("bench");
  progress.Show("reading, keeping, restoring");
  const auto measured = MeasureSessionSpeed(
      **engine, options,
      [&](const SessionSpeedRow& row) {
        rows.push_back(row);
        progress.Show(rows.size(), lengths_.size());
      },
      [&] { return interrupt.Requested(); });
  progress.Erase();
  const bool stopped =
      !measured.ok() && measured.status().code() == StatusCode::kCancelled;
  if (!measured.ok() && !stopped) return out.Fail(measured.status());
  if (json_) {
    Json list = Json::array();
    for (const SessionSpeedRow& row : rows) list.push_back(RowAsJson(row));
    out.Write(DumpJson({{"rows", list}}));
  } else {
    out.Write(RowsAsText(rows));
  }
  return stopped ? ExitCode::kInterrupted : ExitCode::kDone;
}

}  // namespace lkv::cli
