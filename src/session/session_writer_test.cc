#include "session/session_writer.h"

#include <gtest/gtest.h>

#include "session/testing_sessions.h"
#include "testing/memory_folder.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

constexpr char kName[] = "s";

// Saves a version of the session; its calls to the folder can fail.
Status Save(Folder& folder, uint32_t version, Durability durability) {
  auto writer = SessionWriter::Begin(
      folder, TestSpec("a", version), TestBound(kTestBlockBytes),
      {.durability = durability, .file_id = {static_cast<uint8_t>(version)}});
  if (!writer.ok()) return writer.status();
  Status s = AppendTestBlocks(**writer, version, kTestBlockBytes);
  if (s.ok()) s = (*writer)->Finish();
  if (s.ok()) s = (*writer)->Publish(kName);
  return s;
}

// The version that the folder holds, to the last byte; 0 for none.
uint32_t VersionIn(MemoryFolder& folder) {
  if (!folder.Has(kName)) return 0;
  auto reader = SessionReader::Open(*folder.Open(kName), kName, {});
  EXPECT_TRUE(reader.ok()) << reader.status().message();
  if (!reader.ok()) return UINT32_MAX;
  for (const uint32_t version : {1, 2}) {
    if ((*reader)->text().tokens != TestTokens(100, version)) continue;
    const Status s = CheckTestBlocks(**reader, version, kTestBlockBytes);
    EXPECT_TRUE(s.ok()) << s.message();
    return version;
  }
  ADD_FAILURE() << "the tokens are of no version";
  return UINT32_MAX;
}

TEST(SessionWriterTest, ShowsTheSessionWhenItIsPublishedAndNotBefore) {
  MemoryFolder folder;
  auto writer = SessionWriter::Begin(folder, TestSpec("a"),
                                     TestBound(kTestBlockBytes), {});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(AppendTestBlocks(**writer, 1, kTestBlockBytes).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_FALSE(folder.Has(kName));
  ASSERT_TRUE((*writer)->Publish(kName).ok());
  EXPECT_EQ(VersionIn(folder), 1u);
  EXPECT_EQ(folder.List()->size(), 1u);
}

TEST(SessionWriterTest, LeavesNothingWhenItIsAbandoned) {
  MemoryFolder folder;
  {
    auto writer = SessionWriter::Begin(folder, TestSpec("a"),
                                       TestBound(kTestBlockBytes), {});
    EXPECT_EQ(folder.List()->size(), 1u);
    ASSERT_TRUE(AppendTestBlocks(**writer, 1, kTestBlockBytes).ok());
  }
  EXPECT_TRUE(folder.List()->empty());
}

TEST(SessionWriterTest, RemovesItsFileAtTheFirstFailure) {
  MemoryFolder folder;
  auto writer = SessionWriter::Begin(folder, TestSpec("a"),
                                     TestBound(kTestBlockBytes), {});
  folder.failing_call = folder.n_calls + 1;
  EXPECT_FALSE(AppendTestBlocks(**writer, 1, kTestBlockBytes).ok());
  EXPECT_TRUE(folder.List()->empty()) << "and not only when it is destroyed";
}

TEST(SessionWriterTest, TakesTheSpaceBeforeItWrites) {
  MemoryFolder folder;
  const PayloadBound bound = TestBound({1 << 20});
  folder.capacity_bytes = 1 << 20;
  EXPECT_FALSE(SessionWriter::Begin(folder, TestSpec("a"), bound, {}).ok());
  EXPECT_TRUE(folder.List()->empty());
  folder.capacity_bytes = 2 << 20;
  const auto writer = SessionWriter::Begin(folder, TestSpec("a"), bound, {});
  ASSERT_TRUE(writer.ok());
  EXPECT_GE(folder.List()->at(0).used_bytes, 1u << 20);
}

TEST(SessionWriterTest, RefusesWhatAFileCannotHold) {
  MemoryFolder folder;
  const SessionSpec spec = TestSpec(std::string(5000, 'x'));
  EXPECT_EQ(SessionWriter::Begin(folder, spec, {}, {}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(SessionWriter::Begin(folder, TestSpec("a"),
                                 {.n_blocks = kMaxSessionBlocks + 1}, {})
                .status()
                .code(),
            StatusCode::kInvalidArgument);
}

// The calls that a save makes differ in those of Sync alone.
TEST(SessionWriterTest, SyncsAsOftenAsItIsTold) {
  const auto calls_of = [](Durability durability) {
    MemoryFolder folder;
    EXPECT_TRUE(Save(folder, 1, durability).ok());
    return folder.n_calls;
  };
  const uint64_t none = calls_of(Durability::kNone);
  EXPECT_EQ(calls_of(Durability::kSession), none + 3);
  EXPECT_EQ(calls_of(Durability::kAlways), none + 3 + kTestBlockBytes.size());
}

TEST(SessionWriterTest, AFailedCallLeavesTheOldSessionOrTheNewAndNoDraft) {
  for (uint64_t call = 1;; ++call) {
    MemoryFolder folder;
    ASSERT_TRUE(Save(folder, 1, Durability::kSession).ok());
    folder.failing_call = folder.n_calls + call;
    const Status saved = Save(folder, 2, Durability::kSession);
    const bool was_reached = folder.n_calls >= folder.failing_call;
    folder.failing_call = 0;
    const uint32_t version = VersionIn(folder);
    ASSERT_TRUE(version == 2 || (version == 1 && !saved.ok())) << call;
    EXPECT_EQ(folder.List()->size(), 1u) << "call " << call;
    if (!was_reached) {
      EXPECT_TRUE(saved.ok());
      EXPECT_GT(call, 15u) << "too few calls were tried";
      break;
    }
  }
}

TEST(SessionWriterTest, TellsOfAFailedSync) {
  for (const uint64_t from_end : {0, 2, 5}) {  // folder, index, payload
    MemoryFolder folder;
    ASSERT_TRUE(Save(folder, 1, Durability::kSession).ok());
    const uint64_t n_calls = folder.n_calls;
    folder.n_calls = 0;
    folder.failing_call = n_calls - from_end;
    auto writer = SessionWriter::Begin(
        folder, TestSpec("a", 2), TestBound(kTestBlockBytes), {.file_id = {2}});
    ASSERT_TRUE(AppendTestBlocks(**writer, 2, kTestBlockBytes).ok());
    Status s = (*writer)->Finish();
    if (s.ok()) s = (*writer)->Publish(kName);
    EXPECT_FALSE(s.ok());
    EXPECT_TRUE((*writer)->has_failed_sync()) << from_end;
  }
}

// At which subset of what was not synced a crash may stop: all prefixes, all
// suffixes, names alone, bytes alone, and random ones.
std::vector<std::function<bool(size_t)>> Survivors(size_t n_pending) {
  std::vector<std::function<bool(size_t)>> survivors;
  for (size_t n = 0; n <= n_pending; ++n) {
    survivors.push_back([=](size_t i) { return i < n; });
    survivors.push_back([=](size_t i) { return i >= n; });
    survivors.push_back([=](size_t i) { return i == n; });
    survivors.push_back([=](size_t i) { return i != n; });
  }
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    survivors.push_back([=](size_t i) {
      return ((seed * 0x9e3779b97f4a7c15ull) >> (i % 61) & 1) != 0;
    });
  }
  return survivors;
}

// The machine stops at every call, and keeps any part of what was not synced.
TEST(SessionWriterTest, ACrashLeavesTheOldSessionOrTheNew) {
  size_t n_crashes = 0, n_new = 0;
  for (uint64_t call = 1;; ++call) {
    bool was_reached = true;
    // Survivors(n) needs to know how much was pending; 40 is more than ever is.
    const size_t n_cases = Survivors(40).size();
    for (size_t i = 0; i < n_cases; ++i) {
      MemoryFolder folder;
      ASSERT_TRUE(Save(folder, 1, Durability::kSession).ok());
      folder.failing_call = folder.n_calls + call;
      folder.keeps_failing = true;
      const Status saved = Save(folder, 2, Durability::kSession);
      was_reached = folder.n_calls >= folder.failing_call;
      ASSERT_LT(folder.n_pending(), 40u);
      folder.failing_call = 0;
      folder.Crash(Survivors(40)[i]);
      const uint32_t version = VersionIn(folder);
      ASSERT_TRUE(version == 2 || (version == 1 && !saved.ok()))
          << "call " << call << ", case " << i << ": version " << version;
      ++n_crashes;
      n_new += version == 2;
    }
    if (!was_reached) break;
  }
  EXPECT_GT(n_crashes, 2000u);
  EXPECT_GT(n_new, 100u);
}

TEST(SessionWriterTest, IsReadBackFromTheDisk) {
  TempFolder temp;
  auto folder = OpenLocalFolder(temp.File("ours"));
  ASSERT_TRUE(folder.ok());
  const std::vector<size_t> block_bytes = {3u << 20, 100, (2u << 20) + 5};
  const SecretKey key = TestKey();
  const SecretKey* const no_key = nullptr;
  for (const SecretKey* master_key : {no_key, &key}) {
    auto writer =
        SessionWriter::Begin(**folder, TestSpec("a"), TestBound(block_bytes),
                             {.file_id = {3}, .master_key = master_key});
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    ASSERT_TRUE(AppendTestBlocks(**writer, 1, block_bytes).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
    ASSERT_TRUE((*writer)->Publish(kName).ok());
    const auto reader = SessionReader::Open(*(*folder)->Open(kName), kName,
                                            {.master_key = master_key});
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_TRUE((*reader)->Verify().ok());
    const Status s = CheckTestBlocks(**reader, 1, block_bytes);
    EXPECT_TRUE(s.ok()) << s.message();
    // The reserved space was given back.
    const FolderEntry entry = (*folder)->List()->at(0);
    EXPECT_LE(entry.used_bytes, entry.n_bytes + (64u << 10));
  }
}

}  // namespace
}  // namespace lkv
