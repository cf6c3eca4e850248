// Numbers as people read them, with their unit. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bootstrap.h"

namespace lkv::cli {

std::string FormatCount(uint64_t n);  // "6,000"
// "1 token", "6,000 tokens": `thing` in the singular.
std::string FormatCount(uint64_t n, std::string_view thing);
std::string FormatFixed(double value, int decimals);  // "3.14"
std::string FormatSignificant(double value);          // "0.00123", "1.2e-07"
std::string FormatSeconds(double seconds);            // "2.41 s", "38 ms"
std::string FormatRate(double tokens_per_second);     // "2,489 tokens/s"
std::string FormatPercent(double share);              // "2.1 %"
// "0.012 to 0.03"; "-" where there is none.
std::string FormatInterval(const std::optional<Interval>& interval);

}  // namespace lkv::cli
