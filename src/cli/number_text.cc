#include "cli/number_text.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace lkv::cli {

std::string FormatCount(uint64_t n) {
  const std::string digits = std::to_string(n);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string FormatCount(uint64_t n, std::string_view thing) {
  return FormatCount(n) + " " + std::string(thing) + (n == 1 ? "" : "s");
}

std::string FormatFixed(double value, int decimals) {
  std::array<char, 64> buffer;
  const int n =
      std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
  return {buffer.data(), static_cast<size_t>(n)};
}

std::string FormatSignificant(double value) {
  std::array<char, 32> buffer;
  const int n = std::snprintf(buffer.data(), buffer.size(), "%.3g", value);
  return {buffer.data(), static_cast<size_t>(n)};
}

std::string FormatSeconds(double seconds) {
  return seconds < 1
             ? FormatFixed(seconds * 1000, seconds < 0.01 ? 2 : 0) + " ms"
             : FormatFixed(seconds, 2) + " s";
}

std::string FormatRate(double tokens_per_second) {
  return (tokens_per_second < 100 ? FormatFixed(tokens_per_second, 1)
                                  : FormatCount(static_cast<uint64_t>(
                                        std::llround(tokens_per_second)))) +
         " tokens/s";
}

std::string FormatPercent(double share) {
  return FormatFixed(share * 100, 1) + " %";
}

std::string FormatInterval(const std::optional<Interval>& interval) {
  if (!interval) return "-";
  return FormatSignificant(interval->low) + " to " +
         FormatSignificant(interval->high);
}

}  // namespace lkv::cli
