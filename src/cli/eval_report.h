// What `lkv eval` found, as JSON and as a table. Pure.
#pragma once

#include <string>

#include "cli/json_document.h"
#include "eval/closed_loop.h"

namespace lkv::cli {

// A noise floor that was not measured is null, and no line of the text.
Json EvalAsJson(const ClosedLoopReport& report);
std::string EvalAsText(const ClosedLoopReport& report,
                       const ClosedLoopOptions& options);

}  // namespace lkv::cli
