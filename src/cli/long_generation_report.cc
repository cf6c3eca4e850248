#include "cli/long_generation_report.h"

#include "base/byte_text.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "options/budget_text.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

Json RowAsJson(const std::string& text_name, const LongGenerationRow& row,
               const LongGenerationOptions& options) {
  return {{"text", text_name},
          {"prompt_tokens", options.prompt_tokens},
          {"generated_tokens", row.tokens.size()},
          {"budget", BudgetAsJson(row.budget)},
          {"policy", row.policy},
          {"resident_bytes_max", row.resident_bytes_max},
          {"growth", row.growth ? Json(*row.growth) : Json()},
          {"evicted_tokens", row.evicted_tokens},
          {"repeated_4grams", row.repetition.repeated_4grams},
          {"distinct_4grams", row.repetition.distinct_4grams},
          {"perplexity", row.perplexity},
          {"common_tokens", row.common_tokens}};
}

void AddRow(const std::string& text_name, const LongGenerationRow& row,
            TextTable& table) {
  table.AddRow({text_name, FormatBudget(row.budget), row.policy,
                FormatBytes(row.resident_bytes_max),
                row.growth ? FormatFixed(*row.growth, 4) : "-",
                FormatPercent(row.repetition.repeated_4grams),
                FormatPercent(row.repetition.distinct_4grams),
                FormatFixed(row.perplexity, 2),
                FormatCount(row.common_tokens)});
}

}  // namespace

Json LongGenerationAsJson(const std::vector<LongGeneration>& report,
                          const LongGenerationOptions& options) {
  Json rows = Json::array();
  for (const LongGeneration& text : report) {
    rows.push_back(RowAsJson(text.text_name, text.full, options));
    for (const LongGenerationRow& row : text.rows) {
      rows.push_back(RowAsJson(text.text_name, row, options));
    }
  }
  return {{"generations", std::move(rows)}};
}

std::string LongGenerationAsText(const std::vector<LongGeneration>& report,
                                 const LongGenerationOptions& options) {
  std::string out =
      "Generation: " + FormatCount(options.new_tokens, "token") +
      " behind the first " + FormatCount(options.prompt_tokens) +
      " of each text, temperature " + FormatSignificant(options.temperature) +
      ", repeat penalty " + FormatSignificant(options.repeat_penalty) +
      ", seed " + std::to_string(options.seed) + "\n\n";
  TextTable table({{"text"},
                   {"budget", Align::kRight},
                   {"policy"},
                   {"KV memory", Align::kRight},
                   {"growth", Align::kRight},
                   {"repeated 4-grams", Align::kRight},
                   {"distinct", Align::kRight},
                   {"perplexity", Align::kRight},
                   {"as full until", Align::kRight}});
  for (const LongGeneration& text : report) {
    AddRow(text.text_name, text.full, table);
    for (const LongGenerationRow& row : text.rows) {
      AddRow(text.text_name, row, table);
    }
  }
  out += table.Print(TextTable::kNoWrap);
  out +=
      "\nGrowth: the most memory in the second half of what follows the first "
      "eviction,\nover that in the first half. Repeated: four tokens that "
      "stand in the 256 before\nthem, too. Perplexity: of what was written, by "
      "the model with the full cache.\n";
  return out;
}

}  // namespace lkv::cli
