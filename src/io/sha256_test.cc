#include "io/sha256.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace lkv {
namespace {

std::vector<uint8_t> Bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

// FIPS 180-4, the example of one block.
TEST(Sha256Test, HasThePublishedValueHoweverItIsCut) {
  Sha256 hash;
  hash.Add(Bytes("a"));
  hash.Add({});
  hash.Add(Bytes("bc"));
  EXPECT_EQ(hash.Hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace lkv
