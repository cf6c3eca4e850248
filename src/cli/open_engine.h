// Opening the model for a verb: with a line of progress on a terminal, and
// with Ctrl-C ending the process at once, since nothing is lost by it.
#pragma once

#include <memory>

#include "cli/interrupt.h"
#include "engine/engine.h"
#include "lookaheadkv/status.h"

namespace lkv::cli {

// Remarks on the threads, and on weights that could not be carried exactly.
// Afterwards Ctrl-C sets the interrupt's flag.
Result<std::unique_ptr<Engine>> OpenEngine(const EngineOptions& options,
                                           Interrupt& interrupt);

}  // namespace lkv::cli
