#include "store/cold_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <utility>

namespace lkv {
namespace {

constexpr ColdPages::Options kOptions{
    .n_lanes = 3, .head_dim = 64, .groups_per_lane = 5};

ColdPages Create() {
  Result<ColdPages> pages = ColdPages::Create(kOptions);
  EXPECT_TRUE(pages.ok());
  return *std::move(pages);
}

// Fills a new group of a lane with `byte`.
void AddGroup(ColdPages& pages, uint32_t lane, int byte) {
  pages.Open(lane);
  const ColdPages::OpenGroup group = pages.FirstOpen(lane);
  std::memset(group.digest, byte, ColdPages::DigestBytes(64));
  for (uint8_t* body : group.bodies) {
    std::memset(body, byte, ColdPages::BodyBytes(64));
  }
  pages.Fill(lane);
}

TEST(ColdPagesTest, AGroupIsThereOnceItIsFilled) {
  ColdPages pages = Create();
  pages.Open(1);
  EXPECT_TRUE(pages.HasOpen(1));
  EXPECT_EQ(pages.n_groups(1), 0u);
  EXPECT_TRUE(pages.digests(1).empty());
  pages.Open(1);
  const uint8_t* const first = pages.FirstOpen(1).digest;
  pages.Fill(1);
  EXPECT_EQ(pages.n_groups(1), 1u);
  EXPECT_TRUE(pages.HasOpen(1));
  EXPECT_EQ(pages.digests(1)[0], first);
  EXPECT_NE(pages.FirstOpen(1).digest, first);
  pages.Fill(1);
  EXPECT_FALSE(pages.HasOpen(1));
  EXPECT_EQ(pages.n_groups(0), 0u);
}

TEST(ColdPagesTest, PagesOfALaneAreCountedFromItsFirstToken) {
  ColdPages pages = Create();
  for (const int byte : {1, 2}) AddGroup(pages, 2, byte);
  for (uint32_t index = 0; index < 2 * kColdGroupPages; ++index) {
    const ColdPage page = pages.PageAt(2, index);
    EXPECT_EQ(page.digest, pages.digests(2)[index / kColdGroupPages]);
    EXPECT_EQ(page.index, index % kColdGroupPages);
    EXPECT_EQ(page.body[0], index / kColdGroupPages + 1);
    EXPECT_EQ(page.body[ColdPages::BodyBytes(64) - 1],
              index / kColdGroupPages + 1);
  }
}

TEST(ColdPagesTest, BytesAreThoseOfAllGroups) {
  ColdPages pages = Create();
  EXPECT_EQ(pages.n_bytes(), 0u);
  AddGroup(pages, 0, 1);
  pages.Open(1);
  // 20 * 64 for the digest, 4 * (12 * 64 + 64) for the bodies.
  EXPECT_EQ(pages.n_bytes(),
            2 * (1280 + 3328 + ColdPages::kMetadataBytesPerGroup));
}

TEST(ColdPagesTest, AForkHasTheSameGroupsAndGoesItsOwnWay) {
  std::optional<ColdPages> parent(Create());
  AddGroup(*parent, 0, 1);
  Result<ColdPages> forked = parent->Fork();
  ASSERT_TRUE(forked.ok());
  ColdPages fork = *std::move(forked);
  EXPECT_EQ(fork.digests(0)[0], parent->digests(0)[0]);
  EXPECT_EQ(fork.n_bytes(), parent->n_bytes());
  AddGroup(*parent, 0, 2);
  AddGroup(fork, 0, 3);
  EXPECT_EQ(parent->PageAt(0, kColdGroupPages).body[0], 2);
  EXPECT_EQ(fork.PageAt(0, kColdGroupPages).body[0], 3);
  // What a fork holds outlives the parent, and a fork of the fork, both.
  Result<ColdPages> second = fork.Fork();
  ASSERT_TRUE(second.ok());
  parent.reset();
  EXPECT_EQ(fork.PageAt(0, 0).body[0], 1);
  { const ColdPages gone = std::move(fork); }
  EXPECT_EQ(second->PageAt(0, 0).body[0], 1);
  EXPECT_EQ(second->PageAt(0, kColdGroupPages).body[0], 3);
}

}  // namespace
}  // namespace lkv
