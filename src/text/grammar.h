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
//
// They do not bound what libllama takes for a token. It follows every way in
// which a token may be read, so that an ambiguous grammar costs
// ways^(characters of the token), and it keeps every way in which the text so
// far may be read: `s ::= "a" s "b" | "a" s "c"` has 2^n after n times "a".
// Refused are the plain forms: many items of one and the same character in one
// repetition, rule or chain of rules. Accepted are ambiguities of more than one
// character, such as many times [a-z] [a-z] as alternatives of one repetition,
// and of rules that repeat each other. Whoever takes grammars from strangers
// needs a time limit around the process.
Status CheckGrammar(const llama_vocab* vocab, const std::string& text,
                    const std::string& name);

}  // namespace lkv
