// Checks a GBNF grammar before libllama takes it.
#pragma once

#include <string>

#include "lookaheadkv/status.h"

struct llama_vocab;

namespace lkv {

// kInvalidArgument with the line and the problem. libllama would explain the
// same only on stderr, and would take as much stack and memory as a hostile
// text asks for: hence limits on size, nesting and repetition.
Status CheckGrammar(const llama_vocab* vocab, const std::string& text);

}  // namespace lkv
