// In how many ways the rules of a parsed GBNF grammar may begin.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "llama-grammar.h"

namespace lkv {

// Rules whose beginnings libllama cannot follow in sensible time.
struct BeginningProblem {
  enum class Kind {
    kItself,         // a rule begins with itself (left recursion)
    kEmptyLoop,      // something that may be empty is repeated without end
    kEmptyRounds,    // ... or more than kEmptyRoundsMax times
    kSameCharacter,  // more than kSameCharacterMax ways to be one character
    kSameRepeated,   // ... kSameRepeatedMax, in a rule that goes on with itself
    kTooMany,        // more ways than kBeginningsMax
  } kind;
  uint32_t rule;
};

// For each character libllama follows every way in which the rules may go on,
// and compares them in pairs. Real grammars have some tens of ways; 1000 words
// that begin alike cost up to 5 s per token.
constexpr uint32_t kBeginningsMax = 1024;

// Of n rounds that may be empty, libllama tries all ways to spread the
// characters of a token over them: (n choose length). 16 take 0.4 s per token.
constexpr uint32_t kEmptyRoundsMax = 16;

// The same holds for n items of one rule, or of a chain of rules, that may all
// be empty and all take the same character.
constexpr uint32_t kSameCharacterMax = kEmptyRoundsMax;

// [a-z] n times as alternatives of one repetition is tried in n^length ways:
// over a vocabulary of 49152, 4 take 0.15 s per token, 8 take 20 s.
constexpr uint32_t kSameRepeatedMax = 4;

// libllama looks for left recursion itself, but in exponential time, and not
// where what precedes may only be empty through other rules; there it then
// runs out of memory. `derived` says of each rule whether the parser made it,
// of a group or a repetition. Requires that every rule referred to exists.
// O(elements) time; recursion depth up to kBeginningsMax. Finds no bound on
// what libllama does: see grammar.h.
std::optional<BeginningProblem> FindBadBeginning(
    const llama_grammar_rules& rules, const std::vector<bool>& derived);

}  // namespace lkv
