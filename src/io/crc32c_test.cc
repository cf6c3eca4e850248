#include "io/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace lkv {
namespace {

std::vector<uint8_t> Bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

// RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32cTest, HasThePublishedValues) {
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0x00)), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0xff)), 0x62a8ab43u);
  EXPECT_EQ(Crc32c({}), 0u);
}

}  // namespace
}  // namespace lkv
