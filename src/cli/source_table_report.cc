#include "cli/source_table_report.h"

#include "base/byte_text.h"
#include "base/check.h"
#include "cli/demo_report.h"
#include "cli/generation_report.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "eval/source_table.h"
#include "options/budget_text.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

uint64_t FullKvBytes(const DemoReport& report) {
  CHECK(report.rows.front().policy == PolicyName::kFull);
  return report.rows.front().kv.resident_bytes_max;
}

double SavedBy(const DemoRow& row, const DemoReport& report) {
  return SavedMemory(row, FullKvBytes(report), report.weight_bytes);
}

// Bytes that were worked out are no round number.
std::string BudgetText(const Budget& budget) {
  return budget.kind == Budget::Kind::kBytes ? FormatBytes(budget.amount)
                                             : FormatBudget(budget);
}

std::string CostTable(const DemoReport& report) {
  TextTable table({{"policy"},
                   {"tokens/s", Align::kRight},
                   {"p50 ms", Align::kRight},
                   {"p99 ms", Align::kRight},
                   {"KV", Align::kRight},
                   {"with weights", Align::kRight},
                   {"saved", Align::kRight}});
  for (const DemoRow& row : report.rows) {
    table.AddRow({PolicyText(row.policy),
                  FormatFixed(row.decode_tokens_per_second, 1),
                  FormatFixed(row.step.p50_us / 1000, 2),
                  FormatFixed(row.step.p99_us / 1000, 2),
                  FormatBytes(row.kv.resident_bytes_max),
                  FormatBytes(report.weight_bytes + row.kv.resident_bytes_max),
                  FormatPercent(SavedBy(row, report))});
  }
  return table.Print();
}

std::string QualityTable(const DemoReport& report) {
  TextTable table({{"policy"},
                   {"mass hit", Align::kRight},
                   {"top-k hit", Align::kRight},
                   {"raw hit", Align::kRight},
                   {"top-1", Align::kRight},
                   {"KL (nats)", Align::kRight}});
  for (const DemoRow& row : report.rows) {
    table.AddRow({PolicyText(row.policy), FormatPercent(row.hit.mass),
                  FormatPercent(row.hit.topk), FormatPercent(row.hit.raw),
                  FormatPercent(row.fidelity.top1_agreement),
                  row.policy == PolicyName::kFull
                      ? std::string("0")
                      : FormatSignificant(row.fidelity.kl_mean)});
  }
  return table.Print();
}

std::string Claims() {
  return "The design sketch that this project grew out of says of its own "
         "conditions: " +
         FormatFixed(SourceClaims::kTokensPerSecondBefore, 1) + " to " +
         FormatFixed(SourceClaims::kTokensPerSecondAfter, 1) + " tokens/s (" +
         FormatFixed(SourceClaims::kTokensPerSecondAfter /
                         SourceClaims::kTokensPerSecondBefore,
                     1) +
         " times), " + FormatPercent(SourceClaims::kSavedMemory) +
         " less memory, hit rate " +
         FormatPercent(SourceClaims::kHitRateBefore) + " to " +
         FormatPercent(SourceClaims::kHitRateAfter) +
         ". That is another model on another machine, the measurement was "
         "not published, and which hits are counted is left open: not "
         "reproduced here and not claimed. What was measured here is above.";
}

}  // namespace

std::string SourceTableAsText(const DemoReport& report,
                              const DemoOptions& options) {
  std::string out = FormatCount(report.context_tokens) + " tokens in, " +
                    FormatCount(report.forced_tokens) +
                    " given tokens out; budget " +
                    BudgetText(options.cache.budget) + "\n\n" +
                    CostTable(report) + "\n" + QualityTable(report) + "\n";
  for (const char* paragraph :
       {"p50, p99: time of a token while decoding. KV: the most held at any "
        "moment; saved: of KV and weights together.",
        "mass hit: share of attention to tokens that are neither the first "
        "nor the newest ones that was still cached. top-k hit: of the tokens "
        "that hold 90 % of it, the share still cached. raw hit: of all "
        "attention; high for every policy. top-1: same likeliest token as "
        "full; KL: distance of predictions from full's."}) {
    for (const std::string& line : WrapText(paragraph, 78)) out += line + "\n";
  }
  out += "\n";
  for (const std::string& line : WrapText(Claims(), 78)) out += line + "\n";
  return out;
}

Json SourceTableAsJson(const DemoReport& report, const DemoOptions& options) {
  Json document = DemoAsJson(report, options);
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const DemoRow& row = report.rows[i];
    document["rows"][i]["memory"] = {
        {"weight_bytes", report.weight_bytes},
        {"total_bytes_max", report.weight_bytes + row.kv.resident_bytes_max},
        {"saved_share", SavedBy(row, report)}};
  }
  document["sketch"] = {
      {"tokens_per_second",
       {SourceClaims::kTokensPerSecondBefore,
        SourceClaims::kTokensPerSecondAfter}},
      {"hit_rate", {SourceClaims::kHitRateBefore, SourceClaims::kHitRateAfter}},
      {"saved_share", SourceClaims::kSavedMemory},
      {"reproduced", false}};
  return document;
}

}  // namespace lkv::cli
