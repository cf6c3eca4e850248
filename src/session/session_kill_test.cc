// A process that saves, pins and removes sessions is killed at random moments;
// whatever it had promised is there afterwards, and nothing is half.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <random>

#include "session/session_store.h"
#include "session/store_files.h"
#include "session/testing_sessions.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

constexpr int kRounds = 200;
constexpr uint32_t kNames = 6;
// A process says so much before it is killed, at most (twice a call), and lives
// a random while of one save more: progress that does not depend on the load.
constexpr uint32_t kMostHeard = 12;
constexpr long kRestMaxNs = 4'000'000;

// What the child says after each call that succeeded. One write of less than a
// page, so it comes over whole or not at all.
struct Promise {
  uint32_t name = 0;
  uint32_t version = 0;  // 0: removed
};

std::string NameOf(uint32_t name) {
  return std::string(1, static_cast<char>('a' + name));
}
// Sizes and contents follow from the version.
std::vector<size_t> BlocksOf(uint32_t version) {
  std::mt19937_64 random(version);
  std::vector<size_t> block_bytes(1 + random() % 4);
  for (size_t& n : block_bytes) n = random() % 60'000;
  return block_bytes;
}

Status Save(SessionStore& store, uint32_t name, uint32_t version) {
  const std::vector<size_t> block_bytes = BlocksOf(version);
  auto save =
      store.BeginSave(TestSpec(NameOf(name), version), TestBound(block_bytes));
  if (!save.ok()) return save.status();
  for (uint32_t i = 0; i < block_bytes.size(); ++i) {
    BlockInfo info;
    info.n_bytes = block_bytes[i];
    Status s = save->Append(info, TestBlock(version, i, block_bytes[i]));
    if (!s.ok()) return s;
  }
  return store.FinishSave(*std::move(save)).status();
}

class SessionKillTest : public testing::Test {
 protected:
  // Lives until it is killed. Saves versions from `version` on.
  [[noreturn]] void LiveAsChild(int pipe_end, uint64_t seed, uint32_t version) {
    std::mt19937_64 random(seed);
    const auto folder = OpenLocalFolder(path_);
    if (!folder.ok()) _exit(2);
    const auto store = SessionStore::Open(**folder, SystemClock(), options_);
    if (!store.ok()) _exit(3);
    for (;; ++version) {
      const auto name = static_cast<uint32_t>(random() % kNames);
      Promise promise = {name, version};
      // Between its announcement and its end, either may be true.
      Say(pipe_end, promise);
      if (random() % 5 == 0) {
        const std::string id = SessionId(TestOwner().tag, NameOf(name));
        const Status s = (*store)->Remove(id);
        if (!s.ok() && s.code() != StatusCode::kNotFound) _exit(4);
        promise.version = 0;
      } else if (!Save(**store, name, version).ok()) {
        _exit(5);
      }
      Say(pipe_end, promise);
    }
  }
  static void Say(int pipe_end, const Promise& promise) {
    if (write(pipe_end, &promise, sizeof(promise)) != sizeof(promise)) _exit(6);
  }

  // Kills a child after a while; takes over what it had promised.
  void LetAChildLive(uint64_t seed) {
    std::mt19937_64 random(seed);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) LiveAsChild(ends[1], seed, next_version_);
    close(ends[1]);
    under_way_ = Promise();
    n_heard_ = 0;
    const uint64_t n_awaited = random() % kMostHeard;
    while (n_heard_ < n_awaited && Hear(ends[0])) {
    }
    const timespec rest = {0, static_cast<long>(random() % kRestMaxNs)};
    nanosleep(&rest, nullptr);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    while (Hear(ends[0])) {
    }
    close(ends[0]);
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state)) << "it ended with " << WEXITSTATUS(state);
  }
  // Whether the child said something. Announcement and promise take turns.
  bool Hear(int pipe_end) {
    Promise promise;
    if (read(pipe_end, &promise, sizeof(promise)) != sizeof(promise)) {
      return false;
    }
    next_version_ = std::max(next_version_, promise.version + 1);
    if (n_heard_++ % 2 == 0) {
      under_way_ = promise;
    } else {
      promised_[promise.name] = promise.version;
      under_way_ = Promise();
    }
    return true;
  }

  void CheckWhatIsThere() {
    const auto folder = OpenLocalFolder(path_);
    ASSERT_TRUE(folder.ok());
    const auto store = SessionStore::Open(**folder, SystemClock(), options_);
    ASSERT_TRUE(store.ok()) << store.status().message();
    ASSERT_EQ((*store)->counters().damaged, 0u);
    const auto entries = (*folder)->List();
    for (const FolderEntry& entry : *entries) {
      ASSERT_FALSE(IsDraftName(entry.name)) << "the start left a draft";
    }
    for (uint32_t name = 0; name < kNames; ++name) {
      const uint32_t version = VersionOf(**store, name);
      if (HasFatalFailure()) return;
      uint32_t& promised = promised_[name];
      const bool is_under_way =
          under_way_.version != 0 && under_way_.name == name;
      ASSERT_TRUE(
          version == promised ||
          (is_under_way && (version == under_way_.version || version == 0)))
          << NameOf(name) << " has version " << version << " instead of "
          << promised;
      promised = version;
    }
    n_found_ += (*store)->List()->size();
  }

  // 0 when it is not there.
  uint32_t VersionOf(SessionStore& store, uint32_t name) {
    const std::string id = SessionId(TestOwner().tag, NameOf(name));
    const auto reader = store.OpenSession(id, {});
    if (!reader.ok() && reader.status().code() == StatusCode::kNotFound) {
      return 0;
    }
    EXPECT_TRUE(reader.ok()) << reader.status().message();
    if (!reader.ok()) return UINT32_MAX;
    const std::vector<int32_t>& tokens = (*reader)->text().tokens;
    const uint32_t version = static_cast<uint32_t>(tokens[0]) / 1000;
    EXPECT_EQ(tokens, TestTokens(100, version));
    const Status s = CheckTestBlocks(**reader, version, BlocksOf(version));
    EXPECT_TRUE(s.ok()) << s.message();
    return version;
  }

  TempFolder temp_;
  const std::string path_ = temp_.File("sessions");
  const StoreOptions options_ = {.min_free_bytes = 0};
  std::map<uint32_t, uint32_t> promised_;
  Promise under_way_;
  uint32_t next_version_ = 1;
  uint64_t n_heard_ = 0;  // from the last child
  uint64_t n_found_ = 0;
};

TEST_F(SessionKillTest, WhatWasPromisedIsThereAndNothingIsHalf) {
  for (int round = 0; round < kRounds; ++round) {
    LetAChildLive(static_cast<uint64_t>(round) + 1);
    if (HasFatalFailure()) return;
    CheckWhatIsThere();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(next_version_, 300u) << "children were killed too early";
  EXPECT_GT(n_found_, 200u);
}

}  // namespace
}  // namespace lkv
