#include "cli/bench_io_verb.h"

#include "cli/arguments.h"
#include "cli/json_document.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "eval/io_speed.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

Json RowAsJson(const IoSpeedRow& row) {
  return {
      {"method", row.method},
      {"description", row.description},
      {"depth", row.depth},
      {"reads_per_second", row.reads_per_second},
      {"latency_us",
       {{"p50", row.latency_p50_us}, {"p99", row.latency_p99_us}}},
      {"submit_us", {{"p50", row.submit_p50_us}, {"p99", row.submit_p99_us}}},
      {"cpu_us", row.cpu_us}};
}

std::string RowsAsText(const std::vector<IoSpeedRow>& rows) {
  TextTable table({{"method"},
                   {"depth", Align::kRight},
                   {"reads/s", Align::kRight},
                   {"us p50", Align::kRight},
                   {"p99", Align::kRight},
                   {"submit us p50", Align::kRight},
                   {"p99", Align::kRight},
                   {"CPU us", Align::kRight}});
  std::string descriptions;
  for (const IoSpeedRow& row : rows) {
    table.AddRow(
        {row.method, std::to_string(row.depth),
         FormatCount(static_cast<uint64_t>(row.reads_per_second)),
         FormatFixed(row.latency_p50_us, 0), FormatFixed(row.latency_p99_us, 0),
         FormatFixed(row.submit_p50_us, 1), FormatFixed(row.submit_p99_us, 1),
         FormatFixed(row.cpu_us, 1)});
    const std::string line = row.method + ": " + row.description + "\n";
    if (descriptions.find(line) == std::string::npos) descriptions += line;
  }
  return table.Print() + "\n" + descriptions;
}

}  // namespace

void BenchIoVerb::AddTo(CLI::App& bench) {
  CLI::App* verb =
      bench.add_subcommand("io", "Speed of reading single records from a disk");
  verb->add_option("--folder", folder_,
                   "Where to make a file, gone afterwards; made if missing")
      ->type_name("FOLDER")
      ->check(NamesSomething())
      ->required();
  verb->add_option("--depth", depths_, "Reads under way [1,8,32]")
      ->type_name("N,N")
      ->delimiter(',')
      ->check(WholeNumber(1, 32));
  verb->add_option("--file-mib", file_mib_, "Size of the file in MiB [256]")
      ->type_name("N")
      ->check(WholeNumber(1, 1 << 20));
  verb->add_option("--passes", n_passes_,
                   "Times that a row is measured, in turns [5]")
      ->type_name("N")
      ->check(WholeNumber(1, 1000));
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "Reads of 3.5 KiB at random places, by io_uring where the system allows\n"
      "it and by threads. Submit: how long the call that hands a read over\n"
      "holds its thread; CPU: of all threads together, a read.\n\n"
      "Example:\n"
      "  lkv bench io --folder /var/tmp/lkv-io");
}

ExitCode BenchIoVerb::Run(Output& out, Interrupt& interrupt) const {
  interrupt.SetFlag();
  const auto rows = MeasureIoSpeed({.folder = folder_,
                                    .depths = depths_,
                                    .file_bytes = uint64_t{file_mib_} << 20,
                                    .n_passes = n_passes_},
                                   [&] { return interrupt.Requested(); });
  if (interrupt.Requested()) return ExitCode::kInterrupted;
  if (!rows.ok()) return out.Fail(rows.status());
  if (json_) {
    Json list = Json::array();
    for (const IoSpeedRow& row : *rows) list.push_back(RowAsJson(row));
    out.Write(DumpJson({{"rows", list}}));
  } else {
    out.Write(RowsAsText(*rows));
  }
  return ExitCode::kDone;
}

}  // namespace lkv::cli
