// The lexical level of a GBNF text, as libllama's parser reads it. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace lkv {

// Characters of the names of rules: letters, digits and '-'.
bool IsGrammarNameCharacter(char c);

// The end of the item that begins at `at` < text.size(): a comment (without its
// line end), literal, character class, token or name as a whole, else one byte.
// What is not closed ends with the text. O(item).
size_t EndOfGrammarItem(std::string_view text, size_t at);

}  // namespace lkv
