#include "base/byte_text.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(FormatBytesTest, PicksTheUnit) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(96 * kMiB + kMiB / 2), "96.5 MiB");
  EXPECT_EQ(FormatBytes(3 * 1024 * kMiB), "3.0 GiB");
  EXPECT_EQ(FormatBytes(uint64_t{5000} << 40), "5000.0 TiB");
}

}  // namespace
}  // namespace lkv
