// How much a text repeats itself: what a model falls into when it has lost its
// thread.
#pragma once

#include <cstdint>
#include <span>

namespace lkv {

struct Repetition {
  // Share of the runs of four tokens that stand among the 256 tokens before
  // them, too: high when a text goes round in circles.
  double repeated_4grams = 0;
  // Different runs of four tokens over all: low when a text says little new.
  double distinct_4grams = 1;
};

// Of fewer than four tokens: none. Pure. O(n log n).
Repetition RepetitionOf(std::span<const int32_t> tokens);

}  // namespace lkv
