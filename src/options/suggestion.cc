#include "options/suggestion.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lkv {
namespace {

// Longer words are no slip of the finger; it also bounds the table below.
constexpr size_t kLongestWord = 64;

// Edits that turn a into b, where swapping two neighbours is one edit.
size_t EditDistance(std::string_view a, std::string_view b) {
  const size_t columns = b.size() + 1;
  std::vector<size_t> cost((a.size() + 1) * columns);  // [a + 1, b + 1]
  for (size_t j = 0; j <= b.size(); ++j) cost[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t* row = &cost[i * columns];
    const size_t* above = row - columns;
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1,
                         above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped =
          i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], (above - columns)[j - 2] + 1);
    }
  }
  return cost.back();
}

}  // namespace

std::string_view NearestWord(std::string_view word,
                             std::span<const std::string_view> candidates) {
  if (word.empty() || word.size() > kLongestWord) return {};
  size_t best = std::max<size_t>(2, word.size() / 3) + 1;
  std::string_view nearest;
  for (std::string_view candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best && distance < candidate.size()) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace lkv
