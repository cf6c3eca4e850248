// What is checked of the files that a verb is to read and to write.
#pragma once

#include <span>
#include <string>

#include "lookaheadkv/status.h"

namespace lkv::cli {

// kInvalidArgument when `output` is one of the files that are read, by whatever
// name: writing it would destroy what the user gave.
Status CheckNotAnInput(const std::string& output,
                       std::span<const std::string> inputs);

// kInvalidArgument when two of `inputs` are one file, by whatever names: what
// is measured twice counts twice, and makes intervals look narrow.
Status CheckEachOnce(std::span<const std::string> inputs);

}  // namespace lkv::cli
