// Shuffling by a seed.
#pragma once

#include <cstddef>
#include <random>
#include <utility>
#include <vector>

namespace lkv {

// Fisher-Yates with draws by remainder from a generator whose numbers the
// standard fixes, so that a seed means the same with every library, which of
// std::shuffle is not true. The first k are a fair sample of all.
template <typename T>
void SeededShuffle(std::vector<T>& things, std::mt19937_64& random) {
  for (size_t i = 0; i < things.size(); ++i) {
    std::swap(things[i], things[i + random() % (things.size() - i)]);
  }
}

}  // namespace lkv
