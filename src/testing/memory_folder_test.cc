#include "testing/memory_folder.h"

#include <gtest/gtest.h>

#include <string_view>

namespace lkv {
namespace {

std::vector<uint8_t> Bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

const auto kNothing = [](size_t) { return false; };
const auto kEverything = [](size_t) { return true; };

class MemoryFolderTest : public testing::Test {
 protected:
  // Calls: create, append, and sync if asked for.
  Status Write(const std::string& name, std::string_view text, bool is_synced) {
    auto file = folder_.Create(name);
    if (!file.ok()) return file.status();
    if (Status s = (*file)->Append(Bytes(text)); !s.ok()) return s;
    return is_synced ? (*file)->Sync() : Status();
  }

  MemoryFolder folder_;
};

TEST_F(MemoryFolderTest, ACrashForgetsNamesThatWereNotSynced) {
  ASSERT_TRUE(Write("a", "text", true).ok());
  folder_.Crash(kNothing);
  EXPECT_FALSE(folder_.Has("a"));
}

TEST_F(MemoryFolderTest, ACrashForgetsBytesThatWereNotSynced) {
  ASSERT_TRUE(Write("a", "text", false).ok());
  ASSERT_TRUE(folder_.Sync().ok());
  folder_.Crash(kNothing);
  EXPECT_TRUE(folder_.Contents("a").empty());
}

TEST_F(MemoryFolderTest, WhatWasSyncedStays) {
  ASSERT_TRUE(Write("a", "text", true).ok());
  ASSERT_TRUE(folder_.Sync().ok());
  ASSERT_TRUE(folder_.Remove("a").ok());
  EXPECT_EQ(folder_.n_pending(), 1u);
  folder_.Crash(kNothing);
  EXPECT_EQ(folder_.Contents("a"), Bytes("text")) << "the removal was not";
}

TEST_F(MemoryFolderTest, ACrashKeepsWhatTheTestSays) {
  {
    auto file = folder_.Create("a");
    for (const char* part : {"one ", "two ", "three"}) {
      ASSERT_TRUE((*file)->Append(Bytes(part)).ok());
    }
  }
  ASSERT_TRUE(folder_.Rename("a", "b").ok());
  // Creation, three writes and the renaming: all but the second write.
  ASSERT_EQ(folder_.n_pending(), 5u);
  folder_.Crash([](size_t i) { return i != 2; });
  EXPECT_EQ(folder_.Contents("b"), Bytes({"one \0\0\0\0three", 13}));
  EXPECT_FALSE(folder_.Has("a"));
  folder_.Crash(kEverything);
  EXPECT_TRUE(folder_.Has("b"));
}

TEST_F(MemoryFolderTest, TheCallThatIsAskedForFails) {
  folder_.failing_call = 2;
  EXPECT_FALSE(Write("a", "text", true).ok());
  EXPECT_EQ(folder_.Contents("a"), Bytes("te")) << "half is written";
  EXPECT_TRUE(Write("b", "text", true).ok()) << "only that one fails";
  folder_.keeps_failing = true;
  EXPECT_FALSE(folder_.Sync().ok());
}

TEST_F(MemoryFolderTest, IsFullWhenItsCapacityIsUsed) {
  folder_.capacity_bytes = 2 * kIoBlockBytes;
  ASSERT_TRUE(Write("a", "text", true).ok());
  auto file = folder_.Create("b");
  EXPECT_FALSE((*file)->Reserve(kIoBlockBytes + 1).ok());
  ASSERT_TRUE((*file)->Reserve(kIoBlockBytes).ok());
  EXPECT_EQ(*folder_.FreeBytes(), 0u);
  const std::vector<uint8_t> block(kIoBlockBytes);
  EXPECT_TRUE((*file)->Append(block).ok());
  EXPECT_FALSE((*file)->Append(Bytes("x")).ok());
}

}  // namespace
}  // namespace lkv
