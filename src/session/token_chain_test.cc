#include "session/token_chain.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lkv {
namespace {

std::vector<int32_t> Tokens(size_t n) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 100);
  return tokens;
}

const SessionOwner kOwner = OwnerOf(std::vector<uint8_t>{1, 2, 3});

TEST(TokenChainTest, HasALinkForEvery64WholeTokens) {
  for (const size_t n : {0, 63, 64, 127, 128}) {
    EXPECT_EQ(TokenChain(kOwner.chain_seed, Tokens(n)).size(), n / 64);
  }
}

TEST(TokenChainTest, IsTheSameAsFarAsTheTextsAre) {
  std::vector<int32_t> other = Tokens(256);
  other[130] = 7;
  const auto a = TokenChain(kOwner.chain_seed, Tokens(256));
  const auto b = TokenChain(kOwner.chain_seed, other);
  EXPECT_EQ(a[0], b[0]);
  EXPECT_EQ(a[1], b[1]);
  EXPECT_NE(a[2], b[2]);
  EXPECT_NE(a[3], b[3]) << "equal tokens behind different ones are not equal";
}

TEST(TokenChainTest, OfTwoOwnersShareNothing) {
  const SessionOwner other = OwnerOf(std::vector<uint8_t>{1, 2, 4});
  EXPECT_NE(kOwner.tag, other.tag);
  EXPECT_NE(kOwner.tag, kOwner.chain_seed);
  EXPECT_NE(TokenChain(kOwner.chain_seed, Tokens(64)),
            TokenChain(other.chain_seed, Tokens(64)));
}

TEST(TokenChainTest, CountsCommonTokensToTheShorterEnd) {
  std::vector<int32_t> other = Tokens(90);
  EXPECT_EQ(CommonTokens(Tokens(100), other), 90u);
  EXPECT_EQ(CommonTokens(other, Tokens(100)), 90u);
  other[70] = -1;
  EXPECT_EQ(CommonTokens(Tokens(100), other), 70u);
  EXPECT_EQ(CommonTokens({}, other), 0u);
}

}  // namespace
}  // namespace lkv
