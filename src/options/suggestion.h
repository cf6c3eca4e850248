// What an error message about a word needs: the word itself, safe to print,
// and the known word that was probably meant. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lkv {

// The text in single quotes, on one line: control characters and bytes above
// 0x7e as \xNN, at most 60 characters.
std::string Quoted(std::string_view text);

// The candidate with the smallest edit distance to `word` (insert, delete,
// replace, swap neighbours), or empty when none is near enough to be a slip:
// more than a third of the word would have to change. O(candidates x length^2).
std::string_view NearestWord(std::string_view word,
                             std::span<const std::string_view> candidates);

}  // namespace lkv
