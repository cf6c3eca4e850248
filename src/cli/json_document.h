// JSON as the verbs print it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/bootstrap.h"
#include "lookaheadkv/options.h"

namespace lkv::cli {

// Keeps the order in which fields are written.
using Json = nlohmann::ordered_json;

// Exactly one document, whatever bytes the strings hold, and a line end.
std::string DumpJson(const Json& document);

// [low, high]; null where there is none.
Json IntervalAsJson(const std::optional<Interval>& interval);

// A share as a number (0.25), any other budget as its text ("1024", "64MiB").
Json BudgetAsJson(const Budget& budget);

}  // namespace lkv::cli
