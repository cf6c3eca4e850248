#include "options/budget_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/printable_text.h"

namespace lkv {
namespace {

// 2^50 bytes or tokens: beyond any machine, and still exact in a double.
constexpr double kLargestAmount = 1125899906842624.0;

struct Unit {
  std::string_view name;
  double bytes;
};

// Binary units first: they win where both are equally short. "B" comes last,
// because every unit ends in it.
constexpr std::array<Unit, 9> kUnits = {{{"TiB", 0x1p40},
                                         {"GiB", 0x1p30},
                                         {"MiB", 0x1p20},
                                         {"KiB", 0x1p10},
                                         {"TB", 1e12},
                                         {"GB", 1e9},
                                         {"MB", 1e6},
                                         {"KB", 1e3},
                                         {"B", 1}}};

// A plain decimal number, wholly consumed; no sign, exponent, inf or nan.
std::optional<double> ParseDecimal(std::string_view text) {
  const bool plain =
      !text.empty() && text.front() != '.' && text.back() != '.' &&
      std::all_of(text.begin(), text.end(),
                  [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
  if (!plain) return std::nullopt;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

Status BadBudget(std::string_view text, std::string_view why) {
  return InvalidArgument("budget " + Quoted(text) + " " + std::string(why) +
                         "; use " + std::string(kBudgetForms));
}

// The shortest text without an exponent that reads back as `value`.
std::string ShortDecimal(double value) {
  std::array<char, 400> buffer;  // the least double has 324 decimals
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                 value, std::chars_format::fixed);
  return {buffer.data(), end.ptr};
}

// In percent. 15 digits undo what dividing by 100 did to the last ones of a
// double, however small the share is.
std::string ShortPercent(double share) {
  std::array<char, 32> rounded;
  const auto end =
      std::to_chars(rounded.data(), rounded.data() + rounded.size(),
                    share * 100, std::chars_format::scientific, 14);
  double percent = 0;
  std::from_chars(rounded.data(), end.ptr, percent);
  return ShortDecimal(percent) + "%";
}

// The unit that needs the fewest digits to say it exactly.
std::string ShortestBytes(uint64_t n_bytes) {
  std::string shortest;
  for (const Unit& unit : kUnits) {
    const auto unit_bytes = static_cast<uint64_t>(unit.bytes);
    if (n_bytes % unit_bytes != 0) continue;
    std::string text =
        std::to_string(n_bytes / unit_bytes) + std::string(unit.name);
    if (shortest.empty() || text.size() < shortest.size()) {
      shortest = std::move(text);
    }
  }
  return shortest;
}

}  // namespace

Result<Budget> ParseBudget(std::string_view text) {
  Budget budget;
  if (text == "full") return budget;

  if (text.ends_with('%')) {
    const auto percent = ParseDecimal(text.substr(0, text.size() - 1));
    if (!percent) return BadBudget(text, "is not a share");
    if (*percent <= 0 || *percent > 100) {
      return BadBudget(text, "is not above 0% and at most 100%");
    }
    budget.kind = Budget::Kind::kShare;
    budget.share = *percent / 100;
    return budget;
  }

  budget.kind = Budget::Kind::kTokens;
  double unit_bytes = 1;
  std::string_view number = text;
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    budget.kind = Budget::Kind::kBytes;
    unit_bytes = unit.bytes;
    number.remove_suffix(unit.name.size());
    break;
  }
  const auto value = ParseDecimal(number);
  if (!value) return BadBudget(text, "is not understood");
  const double amount = *value * unit_bytes;
  if (amount > kLargestAmount) return BadBudget(text, "is too large");
  if (amount < 1) return BadBudget(text, "holds nothing");
  if (budget.kind == Budget::Kind::kTokens && amount != std::floor(amount)) {
    return BadBudget(text, "is not a whole number of tokens");
  }
  budget.amount = static_cast<uint64_t>(amount);
  return budget;
}

Result<double> ParseShare(std::string_view text) {
  const Result<Budget> budget = ParseBudget(text);
  if (!budget.ok()) return budget.status();
  if (budget->kind != Budget::Kind::kShare) {
    return InvalidArgument(std::string(text) +
                           " is no share; give one such as 25%");
  }
  return budget->share;
}

std::string FormatBudget(const Budget& budget) {
  switch (budget.kind) {
    case Budget::Kind::kFull:
      return "full";
    case Budget::Kind::kShare:
      return ShortPercent(budget.share);
    case Budget::Kind::kTokens:
      return std::to_string(budget.amount);
    case Budget::Kind::kBytes:
      return ShortestBytes(budget.amount);
  }
  return {};
}

}  // namespace lkv
