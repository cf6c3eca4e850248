// Files that a verb writes.
#pragma once

#include <span>
#include <string>

#include "lookaheadkv/status.h"

namespace lkv::cli {

// kInvalidArgument when `output` is one of the files that are read, by whatever
// name: writing it would destroy what the user gave.
Status CheckNotAnInput(const std::string& output,
                       std::span<const std::string> inputs);

}  // namespace lkv::cli
