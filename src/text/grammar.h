// Checks a GBNF grammar before libllama takes it.
#pragma once

#include <string>

#include "lookaheadkv/status.h"

struct llama_vocab;

namespace lkv {

// kInvalidArgument: "<name>:<line>: <what>; <remedy>", where `name` is what
// the user knows the text by. libllama would explain the same only on stderr,
// and would take as much time, stack and memory as a hostile text asks for:
// hence limits on size, nesting, repetition and on the ways a rule may begin.
Status CheckGrammar(const llama_vocab* vocab, const std::string& text,
                    const std::string& name);

}  // namespace lkv
