#include "session/room_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace lkv {
namespace {

constexpr RoomRequest kRequest = {.needed_bytes = 10,
                                  .used_bytes = 80,
                                  .quota_bytes = 100,
                                  .free_bytes = 1000,
                                  .min_free_bytes = 100};
const std::vector<uint64_t> kVictims = {3, 4, 5, 60};

TEST(RoomPlanTest, NobodyLeavesBelowTheHighWatermark) {
  RoomRequest request = kRequest;
  request.needed_bytes = 15;
  EXPECT_EQ(*CountVictims(request, kVictims), 0u);
  EXPECT_EQ(*CountVictims(request, {}), 0u);
}

TEST(RoomPlanTest, AboveItTheFirstLeaveDownToTheLowOne) {
  RoomRequest request = kRequest;
  request.needed_bytes = 16;  // 96 of 100: 6 have to go
  EXPECT_EQ(*CountVictims(request, kVictims), 2u);
  request.needed_bytes = 20;
  EXPECT_EQ(*CountVictims(request, kVictims), 3u);
}

TEST(RoomPlanTest, TheQuotaMayBeFilledWhenNobodyElseCanLeave) {
  RoomRequest request = kRequest;
  request.needed_bytes = 20;
  EXPECT_EQ(*CountVictims(request, {}), 0u);
  request.needed_bytes = 27;
  EXPECT_EQ(*CountVictims(request, std::vector<uint64_t>{3, 4}), 2u);
}

TEST(RoomPlanTest, BeyondTheQuotaNobodyLeavesInVain) {
  RoomRequest request = kRequest;
  request.needed_bytes = 28;
  const auto refused = CountVictims(request, std::vector<uint64_t>{3, 4});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(refused.status().message().find("73 B are pinned"),
            std::string::npos)
      << refused.status().message();
}

TEST(RoomPlanTest, SomeOfTheDiskStaysFree) {
  RoomRequest request = kRequest;
  request.free_bytes = 110;
  EXPECT_EQ(*CountVictims(request, kVictims), 0u);
  request.free_bytes = 105;
  EXPECT_EQ(*CountVictims(request, kVictims), 2u);
  request.free_bytes = 30;
  EXPECT_FALSE(CountVictims(request, std::vector<uint64_t>{30}).ok());
}

}  // namespace
}  // namespace lkv
