#include "base/byte_text.h"

#include <array>
#include <cstdio>

namespace lkv {

std::string FormatBytes(uint64_t n_bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(n_bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s",
                value, kUnits[unit]);
  return text.data();
}

}  // namespace lkv
