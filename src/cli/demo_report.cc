#include "cli/demo_report.h"

#include <algorithm>

#include "base/byte_text.h"
#include "cli/generation_report.h"
#include "cli/number_text.h"
#include "cli/text_table.h"
#include "options/budget_text.h"

namespace lkv::cli {
namespace {

using Align = TextTable::Align;

const DemoRow* FindRow(const DemoReport& report, PolicyName policy,
                       bool reads_whole = false) {
  const auto at = std::find_if(
      report.rows.begin(), report.rows.end(), [&](const DemoRow& row) {
        return row.policy == policy && row.reads_whole == reads_whole;
      });
  return at == report.rows.end() ? nullptr : &*at;
}

std::string RowName(const DemoRow& row) {
  // repeat reads nothing but whole texts.
  const bool says_whole = row.reads_whole && row.policy != PolicyName::kRepeat;
  return PolicyText(row.policy) + (says_whole ? ", whole" : "");
}

// What to read in the table. Figures only: which way they point is theirs.
std::vector<std::string> Reading(const DemoReport& report) {
  const DemoRow* full = FindRow(report, PolicyName::kFull);
  const DemoRow* lru = FindRow(report, PolicyName::kLru);
  const DemoRow* ours = FindRow(report, PolicyName::kLookahead);
  if (full == nullptr || lru == nullptr || ours == nullptr) return {};
  if (ours->kv.evicted_tokens == 0) {
    return {"Nothing had to leave: the text fits into the budget."};
  }
  const double speed =
      ours->decode_tokens_per_second / full->decode_tokens_per_second;
  const double bytes_ratio =
      static_cast<double>(report.weight_bytes + full->kv.read_bytes_last_step) /
      static_cast<double>(report.weight_bytes + ours->kv.read_bytes_last_step);
  std::vector<std::string> sentences = {
      "Speed: lookahead decoded " + FormatFixed(speed, 2) +
          " times as fast as full. A step reads " +
          FormatBytes(ours->kv.read_bytes_last_step) + " of KV instead of " +
          FormatBytes(full->kv.read_bytes_last_step) + ", with the weights " +
          FormatFixed(bytes_ratio, 2) +
          " times fewer bytes; what differs from that is the policy's work "
          "and what else the machine did. lru and lookahead read the same, "
          "so compare speeds with full.",
      "Quality: inside the same budget lookahead held " +
          FormatPercent(ours->hit.mass) +
          " of the attention that policies compete for, lru " +
          FormatPercent(lru->hit.mass) + ", and its predictions lie " +
          FormatSignificant(ours->fidelity.kl_mean) +
          " nats from those of full, lru's " +
          FormatSignificant(lru->fidelity.kl_mean) + " (rounding alone: " +
          FormatSignificant(report.noise_floor.kl_mean) + ")."};
  const DemoRow* whole = FindRow(report, PolicyName::kLookahead, true);
  if (whole != nullptr) {
    sentences.push_back(
        "Reading: whole (--set read=whole) cuts the text down once it has been "
        "read. It takes " +
        FormatBytes(whole->kv.resident_bytes_max) + " until then and " +
        FormatBytes(whole->kv.budget_bytes) +
        " from then on; its predictions lie " +
        FormatSignificant(whole->fidelity.kl_mean) +
        " nats from those of full.");
  }
  return sentences;
}

Json FidelityAsJson(const Fidelity& fidelity) {
  return {{"kl_mean", fidelity.kl_mean},
          {"kl_p95", fidelity.kl_p95},
          {"kl_p99", fidelity.kl_p99},
          {"kl_mean_sure", fidelity.kl_mean_sure},
          {"top1_agreement", fidelity.top1_agreement},
          {"top5_overlap", fidelity.top5_overlap},
          {"ppl_ratio", fidelity.perplexity_ratio}};
}

Json RowAsJson(const DemoRow& row) {
  return {{"policy", PolicyText(row.policy)},
          {"read", row.reads_whole ? "whole" : "budget"},
          {"prefill", {{"tokens_per_second", row.prefill_tokens_per_second}}},
          {"decode",
           {{"tokens_per_second", row.decode_tokens_per_second},
            {"step_us", StepsAsJson(row.step)},
            {"policy_share", row.policy_share}}},
          {"kv",
           {{"budget_bytes", row.kv.budget_bytes},
            {"resident_bytes_max", row.kv.resident_bytes_max},
            {"full_bytes", row.kv.full_bytes},
            {"read_bytes_per_step", row.kv.read_bytes_last_step},
            {"evicted_tokens", row.kv.evicted_tokens}}},
          {"hit",
           {{"mass", row.hit.mass},
            {"topk", row.hit.topk},
            {"raw", row.hit.raw},
            {"sampled_steps", row.hit.sampled_steps}}},
          {"fidelity", FidelityAsJson(row.fidelity)},
          {"answer", row.answer}};
}

}  // namespace

std::string DemoAsText(const DemoReport& report, const DemoOptions& options) {
  std::string out = "A text of " + FormatCount(report.context_tokens) +
                    " tokens, then " + FormatCount(report.forced_tokens) +
                    " given tokens; budget " +
                    FormatBudget(options.cache.budget) + "\n\n";
  TextTable table({{"policy"},
                   {"tokens/s", Align::kRight},
                   {"ms/token", Align::kRight},
                   {"KV memory", Align::kRight},
                   {"hit rate", Align::kRight},
                   {"top-1", Align::kRight},
                   {"KL (nats)", Align::kRight}});
  const auto seconds_text = [](double rate) {
    return rate > 0 ? FormatFixed(1000 / rate, 2) : std::string("-");
  };
  for (const DemoRow& row : report.rows) {
    const bool is_full = row.policy == PolicyName::kFull;
    table.AddRow(
        {RowName(row), FormatFixed(row.decode_tokens_per_second, 1),
         seconds_text(row.decode_tokens_per_second),
         FormatBytes(row.kv.resident_bytes_max), FormatPercent(row.hit.mass),
         FormatPercent(row.fidelity.top1_agreement),
         is_full ? std::string("0") : FormatSignificant(row.fidelity.kl_mean)});
  }
  out += table.Print() + "\n";
  out +=
      "hit rate: share of attention to tokens that are neither the first nor\n"
      "the newest ones that was still cached; top-1: same likeliest token as\n"
      "full; KL: distance of predictions from full's.\n\n";
  for (const std::string& sentence : Reading(report)) {
    for (const std::string& line : WrapText(sentence, 78)) out += line + "\n";
  }
  if (options.question.empty()) return out;
  if (!report.no_question.empty()) {
    return out + "\nNo question was asked: " + report.no_question + ".\n";
  }

  out += "\nAsked about the text: " + options.question + "\n";
  for (const DemoRow& row : report.rows) {
    std::string label = "  " + RowName(row);
    label.resize(std::max<size_t>(label.size() + 2, 20), ' ');
    // Answers may hold line ends; WrapText breaks at blanks only.
    std::string answer = row.answer;
    std::replace(answer.begin(), answer.end(), '\n', ' ');
    for (const std::string& line : WrapText(answer, 58)) {
      out += label + line + "\n";
      label.assign(label.size(), ' ');
    }
  }
  return out;
}

Json DemoAsJson(const DemoReport& report, const DemoOptions& options) {
  Json rows = Json::array();
  for (const DemoRow& row : report.rows) rows.push_back(RowAsJson(row));
  return {{"context_tokens", report.context_tokens},
          {"forced_tokens", report.forced_tokens},
          {"budget", FormatBudget(options.cache.budget)},
          {"question",
           report.no_question.empty() ? Json(options.question) : Json()},
          {"rows", rows},
          {"noise_floor", FidelityAsJson(report.noise_floor)},
          {"reading", Reading(report)}};
}

}  // namespace lkv::cli
