// The result of `lkv demo --source-table`: speed, latency, memory and hit rates
// with what they mean, and what the design sketch says beside it. Pure.
#pragma once

#include <string>

#include "cli/json_document.h"
#include "eval/demo.h"

namespace lkv::cli {

// Both require that the report's first row is the full cache.
std::string SourceTableAsText(const DemoReport& report,
                              const DemoOptions& options);
// The document of `lkv demo`, with `memory` in every row and the sketch's
// figures beside the rows.
Json SourceTableAsJson(const DemoReport& report, const DemoOptions& options);

}  // namespace lkv::cli
