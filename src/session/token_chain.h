// Hashes by which the longest common beginning of two texts is found without
// looking at all texts: one per 64 tokens, each over the one before it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/sha256.h"

namespace lkv {

// Tokens of one link. Beginnings shorter than that are not found, for reading
// 64 tokens anew takes less time than opening a file.
inline constexpr uint32_t kLinkTokens = 64;

// Who owns a session, from a salt that the server alone knows. The tag stands
// in files; the seed, from which chains begin, does not, so whoever reads them
// cannot check guesses at a text, and equal texts of two owners share nothing.
struct SessionOwner {
  Digest tag = {};
  Digest chain_seed = {};
};
SessionOwner OwnerOf(std::span<const uint8_t> salt);

// One digest per whole link of `tokens`. 1 us each.
std::vector<Digest> TokenChain(const Digest& seed,
                               std::span<const int32_t> tokens);

// Tokens from the first on that are equal.
uint32_t CommonTokens(std::span<const int32_t> a, std::span<const int32_t> b);

}  // namespace lkv
