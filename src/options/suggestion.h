// The known word that was probably meant by an unknown one. Pure.
#pragma once

#include <span>
#include <string_view>

namespace lkv {

// The candidate with the smallest edit distance to `word` (insert, delete,
// replace, swap neighbours), or empty when none is near enough to be a slip:
// more than a third of the word would have to change. O(candidates x length^2).
std::string_view NearestWord(std::string_view word,
                             std::span<const std::string_view> candidates);

}  // namespace lkv
