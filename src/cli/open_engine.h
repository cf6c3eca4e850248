// Opening the model for a verb: with a line of progress on a terminal, and
// with Ctrl-C ending the process at once, since nothing is lost by it.
#pragma once

#include <memory>

#include "cli/arguments.h"
#include "cli/interrupt.h"
#include "engine/engine.h"

namespace lkv::cli {

// Says on stderr which weights could not be carried exactly. Afterwards Ctrl-C
// sets the interrupt's flag.
Result<std::unique_ptr<Engine>> OpenEngine(const EngineOptions& options,
                                           Interrupt& interrupt);

}  // namespace lkv::cli
