// JSON as the verbs print it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/bootstrap.h"

namespace lkv::cli {

// Keeps the order in which fields are written.
using Json = nlohmann::ordered_json;

// Exactly one document, whatever bytes the strings hold, and a line end.
std::string DumpJson(const Json& document);

// [low, high]; null where there is none.
Json IntervalAsJson(const std::optional<Interval>& interval);

}  // namespace lkv::cli
