// Opening the model for a verb: with a line of progress on a terminal, and
// with Ctrl-C ending the process at once, since nothing is lost by it.
#pragma once

#include <memory>

#include "cli/interrupt.h"
#include "engine/engine.h"
#include "lookaheadkv/status.h"

namespace lkv::cli {

// Says on stderr when there are more threads than cores, and which weights
// could not be carried exactly. Afterwards Ctrl-C sets the interrupt's flag.
Result<std::unique_ptr<Engine>> OpenEngine(const EngineOptions& options,
                                           Interrupt& interrupt);

}  // namespace lkv::cli
