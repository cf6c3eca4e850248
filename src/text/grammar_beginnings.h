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
    kItself,       // a rule begins with itself (left recursion)
    kEmptyLoop,    // something that may be empty is repeated without end
    kEmptyRounds,  // ... or more than kEmptyRoundsMax times
    kTooMany,      // more ways than kBeginningsMax
  } kind;
  uint32_t rule;
};

// For each character libllama follows every way in which the rules may go on,
// and compares them in pairs. Real grammars have some tens of ways.
constexpr uint32_t kBeginningsMax = 1024;

// Of n rounds that may be empty, libllama tries all ways to spread the
// characters of a token over them: (n choose length). 16 take microseconds.
constexpr uint32_t kEmptyRoundsMax = 16;

// libllama looks for left recursion itself, but in exponential time, and not
// where what precedes may only be empty through other rules; there it then
// runs out of memory. `derived` says of each rule whether the parser made it,
// of a group or a repetition. Requires that every rule referred to exists.
// O(elements) time; recursion depth up to kBeginningsMax.
std::optional<BeginningProblem> FindBadBeginning(
    const llama_grammar_rules& rules, const std::vector<bool>& derived);

}  // namespace lkv
