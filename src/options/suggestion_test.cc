#include "options/suggestion.h"

#include <gtest/gtest.h>

#include <array>

namespace lkv {
namespace {

constexpr std::array kWords =
    std::to_array<std::string_view>({"base_window", "budget", "h2o", "lru"});

TEST(NearestWordTest, FindsTheWordOneSlipAway) {
  EXPECT_EQ(NearestWord("base_windw", kWords), "base_window");
  EXPECT_EQ(NearestWord("bugdet", kWords), "budget");
  EXPECT_EQ(NearestWord("h20", kWords), "h2o");
}

TEST(NearestWordTest, StaysSilentAboutAWordThatIsNotNear) {
  EXPECT_EQ(NearestWord("temperature", kWords), "");
  EXPECT_EQ(NearestWord("x", kWords), "");
  EXPECT_EQ(NearestWord("", kWords), "");
  EXPECT_EQ(NearestWord(std::string(100000, 'a'), kWords), "");
}

}  // namespace
}  // namespace lkv
