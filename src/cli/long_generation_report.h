// What the suite `generation` of `lkv eval` found, as JSON and as a table.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/json_document.h"
#include "eval/long_generation.h"

namespace lkv::cli {

// {"generations": [...]}: an entry for each text and row, the full cache's
// first.
Json LongGenerationAsJson(const std::vector<LongGeneration>& report,
                          const LongGenerationOptions& options);
std::string LongGenerationAsText(const std::vector<LongGeneration>& report,
                                 const LongGenerationOptions& options);

}  // namespace lkv::cli
