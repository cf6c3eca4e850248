#include "session/fingerprint.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

Fingerprint Sample() {
  Fingerprint print;
  print.Set("kv_type", "f16");
  print.Set("layers", "30");
  print.Set("weights", "b179c952");
  return print;
}

TEST(FingerprintTest, IsTheSameWhateverTheOrder) {
  Fingerprint other;
  other.Set("weights", "b179c952");
  other.Set("kv_type", "int8");
  other.Set("layers", "30");
  other.Set("kv_type", "f16");
  EXPECT_EQ(other.Hash(), Sample().Hash());
  EXPECT_FALSE(other.DifferenceFrom(Sample()));
}

TEST(FingerprintTest, NamesTheAxisThatDiffersWithBothValues) {
  const Fingerprint sample = Sample();
  for (const auto& [axis, value] : sample.axes()) {
    Fingerprint other = sample;
    other.Set(axis, value + "x");
    const auto difference = other.DifferenceFrom(Sample());
    ASSERT_TRUE(difference);
    EXPECT_EQ(difference->Text(),
              axis + " is " + value + "x instead of " + value);
    EXPECT_NE(other.Hash(), Sample().Hash());
  }
}

TEST(FingerprintTest, AnAxisThatIsMissingDiffers) {
  for (const char* axis : {"adapter", "lora", "z"}) {
    Fingerprint more = Sample();
    more.Set(axis, "1");
    EXPECT_EQ(more.DifferenceFrom(Sample())->Text(),
              std::string(axis) + " is 1 instead of (none)");
    EXPECT_EQ(Sample().DifferenceFrom(more)->Text(),
              std::string(axis) + " is (none) instead of 1");
  }
}

TEST(FingerprintTest, TextsCannotBeMovedFromOneAxisToTheNext) {
  Fingerprint one, other;
  one.Set("ab", "c");
  other.Set("a", "bc");
  EXPECT_NE(one.Hash(), other.Hash());
}

}  // namespace
}  // namespace lkv
