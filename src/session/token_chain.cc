#include "session/token_chain.h"

#include <algorithm>
#include <string_view>

#include "io/secret_key.h"

namespace lkv {
namespace {

Digest HmacOf(std::span<const uint8_t> salt, std::string_view purpose) {
  return HmacSha256(
      salt, {reinterpret_cast<const uint8_t*>(purpose.data()), purpose.size()});
}

}  // namespace

SessionOwner OwnerOf(std::span<const uint8_t> salt) {
  return {.tag = HmacOf(salt, "lookaheadkv session owner"),
          .chain_seed = HmacOf(salt, "lookaheadkv token chain")};
}

std::vector<Digest> TokenChain(const Digest& seed,
                               std::span<const int32_t> tokens) {
  std::vector<Digest> chain;
  chain.reserve(tokens.size() / kLinkTokens);
  Digest before = seed;
  for (; tokens.size() >= kLinkTokens; tokens = tokens.subspan(kLinkTokens)) {
    Sha256 hash;
    hash.Add(before);
    const std::span<const int32_t> link = tokens.first(kLinkTokens);
    hash.Add(
        {reinterpret_cast<const uint8_t*>(link.data()), link.size_bytes()});
    before = hash.Finish();
    chain.push_back(before);
  }
  return chain;
}

uint32_t CommonTokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  const auto end =
      std::mismatch(a.begin(), a.begin() + static_cast<long>(n), b.begin());
  return static_cast<uint32_t>(end.first - a.begin());
}

}  // namespace lkv
