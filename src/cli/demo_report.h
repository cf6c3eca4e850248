// The result of the demonstration as a table with its reading, and as JSON.
// Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "eval/demo.h"

namespace lkv::cli {

std::string DemoAsText(const DemoReport& report, const DemoOptions& options);
nlohmann::ordered_json DemoAsJson(const DemoReport& report,
                                  const DemoOptions& options);

}  // namespace lkv::cli
