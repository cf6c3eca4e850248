#include "cli/bench_kernels_verb.h"

#include <vector>

#include "base/printable_text.h"
#include "cli/arguments.h"
#include "cli/json_document.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "engine/kernel_choice.h"
#include "eval/kernel_speed.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

Json RowAsJson(const KernelSpeedRow& row) {
  const bool memory = row.bound == KernelSpeedRow::Bound::kMemory;
  Json json = {{"kernel", row.kernel},
               {"isa", row.isa},
               {"n", row.n},
               {"threads", row.n_threads}};
  json["gb_s"] = memory ? Json(row.gb_s) : Json();
  json["gflop_s"] = memory ? Json() : Json(row.gflop_s);
  json["ratio_to_stream"] = memory ? Json(row.ratio_to_stream) : Json();
  json["ratio_min"] = memory ? Json(row.ratio_min) : Json();
  json["ratio_max"] = memory ? Json(row.ratio_max) : Json();
  return json;
}

std::string RowsAsText(const std::vector<KernelSpeedRow>& rows) {
  TextTable table({{"kernel"},
                   {"set"},
                   {"n", Align::kRight},
                   {"threads", Align::kRight},
                   {"GB/s", Align::kRight},
                   {"of stream", Align::kRight},
                   {"min-max", Align::kRight},
                   {"GFLOP/s", Align::kRight}});
  for (const KernelSpeedRow& row : rows) {
    const bool memory = row.bound == KernelSpeedRow::Bound::kMemory;
    table.AddRow({row.kernel, row.isa, FormatCount(row.n),
                  std::to_string(row.n_threads),
                  memory ? FormatFixed(row.gb_s, 1) : "-",
                  memory ? FormatFixed(row.ratio_to_stream, 2) : "-",
                  memory ? FormatFixed(row.ratio_min, 2) + "-" +
                               FormatFixed(row.ratio_max, 2)
                         : "-",
                  memory ? "-" : FormatFixed(row.gflop_s, 0)});
  }
  return table.Print();
}

}  // namespace

void BenchKernelsVerb::AddTo(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "kernels", "Speed of the kernels, beside a plain read of memory");
  verb->add_option("--filter", filter_,
                   "Only kernels whose name contains this [all]")
      ->type_name("TEXT");
  threads_.AddTo(*verb);
  verb->add_option("--passes", n_passes_,
                   "Times that a row is measured; its median is shown [7]")
      ->type_name("N")
      ->check(WholeNumber(1, 1000));
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "Names: what it does / format / shape. matvec, matmul: one token, 256\n"
      "tokens; tile4 holds 4-bit weights (Q4_0, Q4_1), tile8 Q8_0, tile8x16\n"
      "8 bits with a scale per 16 weights (Q6_K), tile16 f16 and bf16; x8, "
      "x16,\n"
      "f32: bits of an activation; n: columns. decode, prefill:\n"
      "type of the cache / head size x query heads per KV head; n: tokens;\n"
      "extents: runs of 16 pages in random order, as a cache may hold them;\n"
      "shuffled: single pages; masses: with what a policy needs;\n"
      "bf16products: rounded to bf16, as prefill does unless asked for more.\n"
      "\"Of stream\" is the speed against a plain read of the same memory,\n"
      "256 MiB, in turns with it; above 1 the plain read was disturbed "
      "more.\n\n"
      "LKV_KERNELS=avx2 or scalar measures another set than the best.\n\n"
      "Example:\n"
      "  lkv bench kernels --filter decode/f16");
}

ExitCode BenchKernelsVerb::Run(Output& out, Interrupt& interrupt) const {
  const auto kernels = ChooseKernels();
  if (!kernels.ok()) return out.Fail(kernels.status());
  KernelSpeedOptions options;
  options.filter = filter_;
  options.n_passes = n_passes_;
  const auto team = threads_.CreateTeam();
  if (!team.ok()) return out.Fail(team.status());
  interrupt.SetFlag();
  Progress progress("bench");
  progress.Show("filling 256 MiB");
  uint32_t n_rows = 0;
  const std::vector<KernelSpeedRow> rows = MeasureKernelSpeed(
      **kernels, **team, options,
      [&](const KernelSpeedRow& row) {
        progress.Show(std::to_string(++n_rows) + " kernels measured, last " +
                      row.kernel);
      },
      [&] { return interrupt.Requested(); });
  progress.Erase();
  if (rows.empty() && !interrupt.Requested()) {
    return out.Fail(InvalidArgument("--filter: no kernel's name contains " +
                                    Quoted(filter_) +
                                    "; leave it out to see all names"));
  }
  if (json_) {
    Json list = Json::array();
    for (const KernelSpeedRow& row : rows) list.push_back(RowAsJson(row));
    out.Write(DumpJson({{"rows", list}}));
  } else {
    out.Write(RowsAsText(rows));
  }
  return interrupt.Requested() ? ExitCode::kInterrupted : ExitCode::kDone;
}

}  // namespace lkv::cli
