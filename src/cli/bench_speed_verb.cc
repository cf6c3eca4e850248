#include "cli/bench_speed_verb.h"

#include <algorithm>

#include "cli/generation_report.h"
#include "cli/json_document.h"
#include "cli/number_text.h"
#include "cli/open_engine.h"
#include "cli/text_table.h"
#include "eval/demo.h"
#include "options/budget_text.h"
#include "options/option_table.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

constexpr uint32_t kMostTokens = 1u << 20;
constexpr uint32_t kLargestBatch = 256;

std::string KindText(SpeedRow::Kind kind) {
  return kind == SpeedRow::Kind::kDecode ? "decode" : "prefill";
}

std::string KvTypeText(KvTypeName type) {
  CacheOptions cache;
  cache.kv_type = type;
  return FormatOption(*FindOption("kv_type"), cache);
}

Json RowAsJson(const SpeedRow& row) {
  const bool decode = row.kind == SpeedRow::Kind::kDecode;
  return {
      {"kind", KindText(row.kind)},
      {"depth", row.depth_tokens},
      {"batch", row.batch},
      {"shared_prompt", row.shared_prompt},
      {"budget", FormatBudget(row.budget)},
      {"kv_type", KvTypeText(row.kv_type)},
      {"threads", row.n_threads},
      {"tokens_per_second", row.tokens_per_second},
      {"step_us", decode ? StepsAsJson(row.step) : Json()},
      {"step_cpu_us", decode ? StepsAsJson(row.step_cpu) : Json()},
      {"policy_share", decode ? Json(row.policy_share) : Json()},
      {"resident_bytes", row.resident_bytes},
      {"read_bytes_per_step", decode ? Json(row.read_bytes_per_step) : Json()},
      {"ratio_to_stream", decode ? Json(row.ShareOfStream()) : Json()},
      {"stream_gb_s", row.stream_gb_s}};
}

std::string RowsAsText(const std::vector<SpeedRow>& rows) {
  TextTable table({{"kind"},
                   {"depth", Align::kRight},
                   {"batch", Align::kRight},
                   {"budget", Align::kRight},
                   {"kv", Align::kRight},
                   {"tokens/s", Align::kRight},
                   {"p50 ms", Align::kRight},
                   {"p99 ms", Align::kRight},
                   {"cpu p99/p50", Align::kRight},
                   {"policy", Align::kRight},
                   {"stream GB/s", Align::kRight},
                   {"of stream", Align::kRight}});
  for (const SpeedRow& row : rows) {
    const bool decode = row.kind == SpeedRow::Kind::kDecode;
    const double cpu_ratio =
        decode ? row.step_cpu.p99_us / row.step_cpu.p50_us : 0;
    const auto if_decode = [&](std::string text) {
      return decode ? text : std::string("-");
    };
    table.AddRow(
        {KindText(row.kind), FormatCount(row.depth_tokens),
         std::to_string(row.batch) + (row.shared_prompt ? " forks" : ""),
         FormatBudget(row.budget), KvTypeText(row.kv_type),
         FormatFixed(row.tokens_per_second, 1),
         if_decode(FormatFixed(row.step.p50_us / 1000, 2)),
         if_decode(FormatFixed(row.step.p99_us / 1000, 2)),
         if_decode(FormatFixed(cpu_ratio, 2)),
         if_decode(FormatPercent(row.policy_share)),
         FormatFixed(row.stream_gb_s, 1),
         if_decode(FormatFixed(row.ShareOfStream(), 2))});
  }
  return table.Print();
}

}  // namespace

void BenchSpeedVerb::AddTo(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand(
      "speed",
      "Speed of decoding and of prefill, beside a plain read of memory");
  model_.AddTo(*verb, ModelArguments::Offer::kPrecision);
  AddList(*verb, "--depth", &depths_, 0, kMostTokens,
          "Tokens cached before decoding [0,2048,8192]");
  AddList(*verb, "--batch", &batches_, 1, kLargestBatch,
          "Sequences per decode step [1]");
  verb->add_flag("--shared-prompt", shared_prompt_,
                 "The sequences of a batch go on from one prompt, which is in "
                 "memory once (needs a --batch above 1)");
  AddList(*verb, "--prefill", &prefills_, 0, kMostTokens,
          "Lengths of prompts to read; 0: none [512,2048,8192]");
  verb->add_option("--gen", gen_tokens_,
                   "Decode steps per row; 0: no decode rows [128]")
      ->type_name("N")
      ->check(WholeNumber(0, kMostTokens));
  AddList(*verb, "--budget", &budgets_,
          "Budgets [the configuration's, else full,25%]");
  AddList(*verb, "--kv-type", &kv_types_,
          "Element types of the cache: f16, bf16, int8 [the configuration's]");
  verb->add_flag("--teacher-forced", teacher_forced_,
                 "Feed the text of the demo instead of random tokens");
  config_.AddTo(*verb, ConfigArguments::Offer::kFileOnly);
  verb->add_flag("--json", json_, "Print one JSON document");
  verb->footer(
      "p50, p99: of the time that a decode step takes; cpu p99/p50: the same\n"
      "of what all threads compute in it, whoever else has the cores between\n"
      "(a shared cache or core slows that, too). policy: share of the step in\n"
      "which pages are scored and evicted. stream GB/s: a plain read of 256 "
      "MiB\n"
      "just before the row; of stream: how fast the steps read weights and\n"
      "cached tokens, against that. The default takes about a minute.\n\n"
      "Example:\n"
      "  lkv bench speed --depth 0,2048,8192 --budget full,25% --batch 1,8");
}

Result<SpeedOptions> BenchSpeedVerb::ReadOptions() const {
  auto configuration = config_.Load();
  if (!configuration.ok()) return configuration.status();
  SpeedOptions options;
  options.cache = configuration->cache();
  options.depths = depths_;
  options.batches = batches_;
  options.shared_prompt = shared_prompt_;
  if (shared_prompt_ &&
      *std::max_element(batches_.begin(), batches_.end()) < 2) {
    return InvalidArgument(
        "--shared-prompt: no batch has two sequences; add --batch 8");
  }
  options.gen_tokens = gen_tokens_;
  options.prefill_tokens = prefills_;
  std::erase(options.prefill_tokens, 0u);
  if (options.prefill_tokens.empty() && gen_tokens_ == 0) {
    return InvalidArgument(
        "--gen: with 0 steps and no prefill there is nothing to measure; raise"
        " it or give --prefill");
  }
  const auto prefixed = [](const char* option, const Status& status) {
    return InvalidArgument(std::string(option) + ": " +
                           std::string(status.message()));
  };
  options.budgets = {options.cache.budget};
  if (!configuration->IsSet("budget")) {
    options.budgets.push_back({.kind = Budget::Kind::kShare, .share = 0.25});
  }
  if (!budgets_.empty()) options.budgets.clear();
  for (const std::string& text : budgets_) {
    const auto budget = ParseBudget(text);
    if (!budget.ok()) return prefixed("--budget", budget.status());
    options.budgets.push_back(*budget);
  }
  options.kv_types = {options.cache.kv_type};
  if (!kv_types_.empty()) options.kv_types.clear();
  for (const std::string& text : kv_types_) {
    CacheOptions cache;
    const Status status = SetOption(*FindOption("kv_type"), text, &cache);
    if (!status.ok()) return prefixed("--kv-type", status);
    options.kv_types.push_back(cache.kv_type);
  }
  return options;
}

ExitCode BenchSpeedVerb::Run(Output& out, Interrupt& interrupt) const {
  auto options = ReadOptions();
  if (!options.ok()) return out.Fail(options.status());
  auto engine_options = model_.ToEngineOptions();
  if (!engine_options.ok()) return out.Fail(engine_options.status());
  // Speed does not depend on what the model makes of the positions.
  engine_options->allow_beyond_trained = true;
  const auto engine = OpenEngine(*engine_options, interrupt);
  if (!engine.ok()) return out.Fail(engine.status());
  if (teacher_forced_) {
    options->text = (*engine)->tokenizer().Tokenize(
        DemoText(), Tokenizer::Start::kAsTrained, Tokenizer::Special::kAsText);
  }

  std::vector<SpeedRow> rows;
  Progress progress("bench");
  progress.Show("warming up");
  const auto measured = MeasureSpeed(
      **engine, *options,
      [&](const SpeedRow& row) {
        rows.push_back(row);
        progress.Show(std::to_string(rows.size()) + " rows measured");
      },
      [&] { return interrupt.Requested(); });
  progress.Erase();
  const bool stopped =
      !measured.ok() && measured.status().code() == StatusCode::kCancelled;
  if (!measured.ok() && !stopped) return out.Fail(measured.status());
  if (json_) {
    Json list = Json::array();
    for (const SpeedRow& row : rows) list.push_back(RowAsJson(row));
    out.Write(DumpJson({{"rows", list}}));
  } else {
    out.Write(RowsAsText(rows));
  }
  return stopped ? ExitCode::kInterrupted : ExitCode::kDone;
}

}  // namespace lkv::cli
