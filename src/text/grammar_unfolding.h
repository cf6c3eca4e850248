// What libllama's parser would unfold the repetitions of a GBNF grammar to,
// found without unfolding them. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lkv {

// What is wrong with a grammar, where, and what helps.
struct GrammarProblem {
  size_t offset = 0;  // in bytes from the beginning of the text
  std::string what;
  std::string remedy;
};

// The first place at which the parser would not come back in sensible time and
// memory. It copies an item once for every repetition, recurses once per open
// parenthesis, repeats the name of a rule in all that it derives from it, takes
// {5,2} for 2^64 - 3 repetitions and {1,5000} for one without an upper end.
// O(text). Nonsense of other kinds is left to the parser.
std::optional<GrammarProblem> FindCostlyUnfolding(std::string_view text);

}  // namespace lkv
