#include "store/segment_space.h"

#include <gtest/gtest.h>

namespace lkv {
namespace {

TEST(SegmentSpaceTest, GrowsOnlyAsFarAsItMay) {
  SegmentSpace space(2);
  EXPECT_EQ(space.Take(), std::nullopt);
  EXPECT_EQ(space.Grow(), 0u);
  EXPECT_TRUE(space.CanGrow());
  EXPECT_EQ(space.Grow(), 1u);
  EXPECT_EQ(space.n_grown(), 2u);
  EXPECT_FALSE(space.CanGrow());
}

TEST(SegmentSpaceTest, ASegmentIsFreeWhenItsLastRecordIsGone) {
  SegmentSpace space(2);
  space.Fill(space.Grow(), 2, 71);
  space.Fill(space.Grow(), 1, 72);
  EXPECT_EQ(space.serial(0), 71u);
  space.ReleaseRecord(0);
  EXPECT_EQ(space.Take(), std::nullopt);
  space.ReleaseRecord(0);
  EXPECT_EQ(space.Take(), 0u);
  EXPECT_EQ(space.Take(), std::nullopt);
  space.Fill(0, 1, 73);
  EXPECT_EQ(space.serial(0), 73u);
  EXPECT_EQ(space.serial(1), 72u);
}

TEST(SegmentSpaceTest, OneThatCouldNotBeWrittenIsFree) {
  SegmentSpace space(2);
  space.Give(space.Grow());
  EXPECT_EQ(space.Take(), 0u);
  EXPECT_EQ(space.n_grown(), 1u);
}

TEST(SegmentSpaceDeathTest, BrokenPromisesStop) {
  SegmentSpace space(1);
  EXPECT_DEATH(space.Give(0), "CHECK failed");
  const uint32_t segment = space.Grow();
  EXPECT_DEATH(space.Grow(), "CHECK failed");
  EXPECT_DEATH(space.ReleaseRecord(segment), "CHECK failed");
  EXPECT_DEATH(space.Fill(segment, 0, 1), "CHECK failed");
  space.Fill(segment, 1, 1);
  EXPECT_DEATH(space.Fill(segment, 1, 1), "CHECK failed");
  EXPECT_DEATH(space.Give(segment), "CHECK failed");
  EXPECT_DEATH((void)space.serial(1), "CHECK failed");
}

}  // namespace
}  // namespace lkv
