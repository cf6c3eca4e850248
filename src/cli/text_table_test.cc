#include "cli/text_table.h"

#include <gtest/gtest.h>

#include "cli/cache_map.h"
#include "cli/number_text.h"

namespace lkv::cli {
namespace {

TEST(TextTableTest, AlignsColumnsAndWrapsTheLast) {
  TextTable table({{"name"}, {"n", TextTable::Align::kRight}, {"words"}});
  table.AddRow({"a", "1,000", "one two three four five six"});
  table.AddRow({"long name", "7", "x"});
  EXPECT_EQ(table.Print(40),
            "name           n  words\n"
            "---------  -----  ----------------------\n"
            "a          1,000  one two three four\n"
            "                  five six\n"
            "long name      7  x\n");
}

TEST(TextTableTest, CountsCharactersNotBytes) {
  TextTable table({{"a"}, {"b"}});
  table.AddRow({"\xc3\xa4\xc3\xb6", "x"});
  table.AddRow({"ab", "y"});
  EXPECT_EQ(table.Print(),
            "a   b\n"
            "--  -\n"
            "\xc3\xa4\xc3\xb6  x\n"
            "ab  y\n");
}

TEST(NumberTextTest, AnIntervalIsFromLowToHigh) {
  EXPECT_EQ(FormatInterval(Interval{.low = 0.012, .high = 0.03}),
            "0.012 to 0.03");
  EXPECT_EQ(FormatInterval(std::nullopt), "-");
}

TEST(NumberTextTest, ShowsUnitsAndGroups) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatSeconds(2.5), "2.50 s");
  EXPECT_EQ(FormatSeconds(0.25), "250 ms");
  EXPECT_EQ(FormatSeconds(0.00123), "1.23 ms");
  EXPECT_EQ(FormatRate(2489.4), "2,489 tokens/s");
  EXPECT_EQ(FormatPercent(0.0214), "2.1 %");
}

TEST(ShadeLineTest, BlankMeansNothingAndHashEverything) {
  // Five cells of two positions over 4 heads: 0, 1/8, 4/8, 7/8, 8/8 held.
  const std::vector<uint32_t> held = {0, 0, 1, 0, 2, 2, 4, 3, 4, 4};
  EXPECT_EQ(ShadeLine(held, 4, 5), " .:+#");
}

TEST(ShadeLineTest, AShortTextHasOneCellPerToken) {
  EXPECT_EQ(ShadeLine(std::vector<uint32_t>{1, 0, 1}, 1, 52), "# #");
}

}  // namespace
}  // namespace lkv::cli
