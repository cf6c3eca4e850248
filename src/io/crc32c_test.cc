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

TEST(Crc32cTest, GoesOnWhereItEnded) {
  EXPECT_EQ(Crc32c(Bytes("56789"), Crc32c(Bytes("1234"))), 0xe3069283u);
}

// As LevelDB and RocksDB do; rotated by 15 bits, plus a constant.
TEST(Crc32cTest, IsStoredAsAnotherNumberThanItIs) {
  EXPECT_EQ(MaskCrc32c(0), 0xa282ead8u);
  EXPECT_EQ(MaskCrc32c(0x00008000u), 0xa282ead9u);
  EXPECT_EQ(MaskCrc32c(0x00000001u), 0xa284ead8u);
}

}  // namespace
}  // namespace lkv
