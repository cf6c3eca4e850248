#include "eval/repetition.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>

namespace lkv {
namespace {

constexpr size_t kGram = 4;
constexpr size_t kNearTokens = 256;

}  // namespace

Repetition RepetitionOf(std::span<const int32_t> tokens) {
  if (tokens.size() < kGram) return {};
  std::map<std::array<int32_t, kGram>, size_t> last_place;
  const size_t n = tokens.size() - kGram + 1;
  size_t n_repeated = 0;
  for (size_t i = 0; i < n; ++i) {
    std::array<int32_t, kGram> gram;
    std::copy_n(tokens.begin() + static_cast<ptrdiff_t>(i), kGram,
                gram.begin());
    const auto [entry, is_new] = last_place.try_emplace(gram, i);
    if (!is_new && i - entry->second <= kNearTokens) ++n_repeated;
    entry->second = i;
  }
  return {.repeated_4grams =
              static_cast<double>(n_repeated) / static_cast<double>(n),
          .distinct_4grams =
              static_cast<double>(last_place.size()) / static_cast<double>(n)};
}

}  // namespace lkv
