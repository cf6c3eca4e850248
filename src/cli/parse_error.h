// What is wrong with a command line, in one line: CLI11's errors in our words.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "lookaheadkv/status.h"

namespace lkv::cli {

// The verb (or verb and sub-verb) that the words have reached.
const CLI::App& DeepestVerb(const CLI::App& app);

// "lkv config show".
std::string PathOf(const CLI::App& verb);

// kInvalidArgument: "run: unknown option '--bugdet'; did you mean '--budget'?"
Status ExplainParseError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace lkv::cli
