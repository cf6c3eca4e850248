// Every call of the folder fails, and the machine stops at every call with any
// part of what was not synced: the next start finds whole sessions, old or new,
// and nothing else.

#include <gtest/gtest.h>

#include "session/session_store.h"
#include "session/store_files.h"
#include "session/testing_sessions.h"
#include "testing/manual_clock.h"
#include "testing/memory_folder.h"

namespace lkv {
namespace {

// What one version of a session has beside its tokens.
const std::vector<size_t> kBlocks = {5000, 100};

class SessionCrashTest : public testing::Test {
 protected:
  SessionCrashTest() { options_.min_free_bytes = 0; }

  Result<std::unique_ptr<SessionStore>> Open(MemoryFolder& folder) {
    return SessionStore::Open(folder, clock_, options_);
  }
  static Status Save(SessionStore& store, const std::string& name,
                     uint32_t version) {
    auto save = store.BeginSave(TestSpec(name, version), TestBound(kBlocks));
    if (!save.ok()) return save.status();
    for (uint32_t i = 0; i < kBlocks.size(); ++i) {
      BlockInfo info;
      info.n_bytes = kBlocks[i];
      Status s = save->Append(info, TestBlock(version, i, kBlocks[i]));
      if (!s.ok()) return s;
    }
    return store.FinishSave(*std::move(save)).status();
  }

  // How far Run came: what was promised.
  struct Progress {
    bool saved_a2 = false;
    bool saved_b = false;
    bool tried_removing_b = false;
    bool removed_b = false;
  };
  // A life of a store whose folder already has version 1 of "a".
  Progress Run(MemoryFolder& folder) {
    Progress progress;
    const auto store = Open(folder);
    if (!store.ok()) return progress;
    progress.saved_b = Save(**store, "b", 1).ok();
    progress.saved_a2 = Save(**store, "a", 2).ok();
    static_cast<void>((*store)->Pin(IdOf("a"), Protection::kProtected));
    progress.tried_removing_b = true;
    progress.removed_b = (*store)->Remove(IdOf("b")).ok();
    static_cast<void>((*store)->Collect());
    return progress;
  }
  static std::string IdOf(const std::string& name) {
    return SessionId(TestOwner().tag, name);
  }

  void Check(MemoryFolder& folder, const Progress& progress,
             const std::string& when) {
    auto store = Open(folder);
    ASSERT_TRUE(store.ok()) << when << store.status().message();
    const auto report = (*store)->Collect();
    ASSERT_TRUE(report.ok()) << when;
    const auto entries = folder.List();
    for (const FolderEntry& entry : *entries) {
      ASSERT_NE(SessionIdIn(entry.name), "") << entry.name << when;
    }
    ASSERT_EQ((*store)->counters().damaged, 0u) << when;
    ASSERT_TRUE(folder.Has(SessionFileName(IdOf("a")))) << when;
    const auto a = (*store)->OpenSession(IdOf("a"), {});
    ASSERT_TRUE(a.ok()) << when << a.status().message();
    const bool is_second = (*a)->text().tokens == TestTokens(100, 2);
    ASSERT_TRUE(is_second || (*a)->text().tokens == TestTokens(100, 1));
    const Status blocks = CheckTestBlocks(**a, is_second ? 2 : 1, kBlocks);
    ASSERT_TRUE(blocks.ok()) << when << blocks.message();
    ASSERT_TRUE(is_second || !progress.saved_a2) << when;
    const bool has_b = folder.Has(SessionFileName(IdOf("b")));
    ASSERT_FALSE(has_b && progress.removed_b) << when;
    if (progress.saved_b && !progress.tried_removing_b) {
      ASSERT_TRUE(has_b) << when;
    }
    if (has_b) {
      const auto b = (*store)->OpenSession(IdOf("b"), {});
      ASSERT_TRUE(b.ok() && CheckTestBlocks(**b, 1, kBlocks).ok()) << when;
    }
  }

  // A folder with version 1 of "a", on the disk.
  void Begin(MemoryFolder& folder) {
    const auto store = Open(folder);
    ASSERT_TRUE(Save(**store, "a", 1).ok());
    folder.n_calls = 0;
  }

  ManualClock clock_;
  StoreOptions options_;
};

TEST_F(SessionCrashTest, AnyOneFailedCallDoesNoHarm) {
  uint64_t n_tried = 0;
  for (bool was_reached = true; was_reached;) {
    MemoryFolder folder;
    Begin(folder);
    folder.failing_call = ++n_tried;
    const Progress progress = Run(folder);
    was_reached = folder.n_calls >= folder.failing_call;
    folder.failing_call = 0;
    Check(folder, progress, " (call " + std::to_string(n_tried) + ")");
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(n_tried, 60u);
}

TEST_F(SessionCrashTest, AStopAtAnyCallWithAnyPrefixLostDoesNoHarm) {
  size_t n_crashes = 0;
  bool was_reached = true;
  for (uint64_t call = 1; was_reached; ++call) {
    for (size_t n_kept = 0, n_pending = 0; n_kept <= n_pending; ++n_kept) {
      MemoryFolder folder;
      Begin(folder);
      folder.failing_call = call;
      folder.keeps_failing = true;
      const Progress progress = Run(folder);
      was_reached = folder.n_calls >= call;
      n_pending = folder.n_pending();
      folder.failing_call = 0;
      folder.Crash([&](size_t i) { return i < n_kept; });
      ++n_crashes;
      Check(folder, progress,
            " (call " + std::to_string(call) + ", kept " +
                std::to_string(n_kept) + ")");
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(n_crashes, 150u);
}

TEST_F(SessionCrashTest, AStopAtAnyCallWithAnythingLostDoesNoHarm) {
  bool was_reached = true;
  for (uint64_t call = 1; was_reached; ++call) {
    for (uint64_t seed = 1; seed <= 30; ++seed) {
      MemoryFolder folder;
      Begin(folder);
      folder.failing_call = call;
      folder.keeps_failing = true;
      const Progress progress = Run(folder);
      was_reached = folder.n_calls >= call;
      folder.failing_call = 0;
      folder.Crash([&](size_t i) {
        return (seed * 0x9e3779b97f4a7c15u >> (i % 61) & 1) != 0;
      });
      Check(folder, progress,
            " (call " + std::to_string(call) + ", seed " +
                std::to_string(seed) + ")");
      if (HasFatalFailure()) return;
    }
  }
}

// Without syncs a crash may damage what was written, but not unnoticed.
TEST_F(SessionCrashTest, WithoutDurabilityDamageIsNoticed) {
  options_.durability = Durability::kNone;
  size_t n_lost = 0, n_whole = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    MemoryFolder folder;
    {
      const auto store = Open(folder);
      ASSERT_TRUE(Save(**store, "a", 1).ok());
      ASSERT_TRUE(Save(**store, "a", 2).ok());
    }
    folder.Crash([&](size_t i) {
      return (seed * 0x9e3779b97f4a7c15u >> (i % 61) & 1) != 0;
    });
    const auto store = Open(folder);
    ASSERT_TRUE(store.ok());
    for (const uint32_t version : {1, 2}) {
      const PrefixMatch match = (*store)->FindPrefix(
          {TestOwner(), TestFingerprint(), TestTokens(100, version)});
      if (match.session == nullptr) continue;
      if (CheckTestBlocks(*match.session, version, kBlocks).ok()) {
        ++n_whole;
      } else {
        ++n_lost;
        EXPECT_FALSE(match.session->Verify().ok())
            << "bytes are wrong and their checksums right";
      }
    }
  }
  EXPECT_GT(n_whole, 0u);
  EXPECT_GT(n_lost, 0u);
}

}  // namespace
}  // namespace lkv
