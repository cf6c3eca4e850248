// What the suite `recall` of `lkv eval` found, as JSON and as a table. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/json_document.h"
#include "eval/recall.h"

namespace lkv::cli {

// {"tasks": [...]}: an entry for each task, budget and policy.
Json RecallAsJson(const std::vector<TaskRecall>& report,
                  const RecallOptions& options);
std::string RecallAsText(const std::vector<TaskRecall>& report,
                         const RecallOptions& options);

}  // namespace lkv::cli
