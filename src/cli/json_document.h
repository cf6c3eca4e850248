// JSON as the verbs print it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lkv::cli {

// Keeps the order in which fields are written.
using Json = nlohmann::ordered_json;

// Exactly one document, whatever bytes the strings hold, and a line end.
std::string DumpJson(const Json& document);

}  // namespace lkv::cli
