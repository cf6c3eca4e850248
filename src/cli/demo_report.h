// The result of the demonstration as a table with its reading, and as JSON.
// Pure.
#pragma once

#include <string>

#include "cli/json_document.h"
#include "eval/demo.h"

namespace lkv::cli {

std::string DemoAsText(const DemoReport& report, const DemoOptions& options);
Json DemoAsJson(const DemoReport& report, const DemoOptions& options);

}  // namespace lkv::cli
