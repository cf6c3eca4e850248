// The text form of a Budget: "full", "25%", "2048" (tokens), "512MiB". Pure.
#pragma once

#include <string>
#include <string_view>

#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

// What ParseBudget accepts, for messages and documents.
inline constexpr std::string_view kBudgetForms =
    "full, a share (25%), tokens (2048) or bytes (512MiB, 2GB)";

// Accepts `full`; a share in (0, 100] with `%`; a whole number of tokens; or a
// number of bytes with B, KiB, MiB, GiB, TiB, KB, MB, GB or TB. No spaces, no
// signs. kInvalidArgument otherwise, without a place: the caller knows it.
Result<Budget> ParseBudget(std::string_view text);

// Accepts the shares alone: 0.25 for "25%".
Result<double> ParseShare(std::string_view text);

// The inverse: the shortest text that ParseBudget reads back as `budget`; of a
// share, to 15 digits.
std::string FormatBudget(const Budget& budget);

}  // namespace lkv
