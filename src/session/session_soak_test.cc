// A random mix of saving, removing, finding and crashing on a disk of 8 MiB:
// the quota holds at every moment, equals what the disk counts, and a full disk
// loses nothing but what would not fit. LKV_SOAK_SECONDS makes it longer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "base/stopwatch.h"
#include "session/session_store.h"
#include "session/testing_sessions.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

constexpr int kMayNotMount = 77;
constexpr uint32_t kNames = 12;
constexpr uint64_t kDiskBytes = 8 << 20;

double SecondsPerMix() {
  const char* text = std::getenv("LKV_SOAK_SECONDS");
  return text == nullptr ? 3 : std::atof(text);
}

void WriteText(const char* path, const std::string& text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  static_cast<void>(write(file, text.data(), text.size()) < 0);
  close(file);
}

// A disk of this process and its children. False where that is not allowed.
bool MountDisk(const std::string& path) {
  const uid_t uid = getuid();
  const gid_t gid = getgid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    const auto map = [](auto id) {
      return std::to_string(id) + " " + std::to_string(id) + " 1";
    };
    WriteText("/proc/self/setgroups", "deny");
    WriteText("/proc/self/uid_map", map(uid));
    WriteText("/proc/self/gid_map", map(gid));
  }
  mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  return mount("tmpfs", path.c_str(), "tmpfs", 0, "size=8m,mode=0700") == 0;
}

class Mix {
 public:
  Mix(std::string path, const StoreOptions& options, size_t most_bytes)
      : path_(std::move(path)), options_(options), most_bytes_(most_bytes) {}

  void Run(double seconds) {
    const Stopwatch watch;
    // However slow the machine is, it sees something of everything.
    while (watch.Seconds() < seconds || n_saved < 30 || n_crashed < 5) {
      const auto folder = OpenLocalFolder(path_);
      ASSERT_TRUE(folder.ok()) << folder.status().message();
      const auto store = SessionStore::Open(**folder, SystemClock(), options_);
      ASSERT_TRUE(store.ok()) << store.status().message();
      for (int i = 0; i < 20; ++i) {
        DoOne(**store);
        if (testing::Test::HasFatalFailure()) return;
        CheckUse(**store);
      }
      CheckContents(**store);
    }
  }
  uint32_t n_saved = 0, n_refused = 0, n_crashed = 0;

 private:
  static std::string NameOf(uint64_t number) {
    return std::string(1, static_cast<char>('a' + number % kNames));
  }
  Status Save(SessionStore& store, const std::string& name, size_t n_bytes,
              bool finishes) {
    const uint32_t version = ++version_;
    const std::vector<size_t> blocks = {n_bytes / 2, n_bytes - n_bytes / 2};
    auto save = store.BeginSave(TestSpec(name, version), TestBound(blocks));
    if (!save.ok()) return save.status();
    for (uint32_t i = 0; i < blocks.size(); ++i) {
      BlockInfo info;
      info.n_bytes = blocks[i];
      Status s = save->Append(info, TestBlock(version, i, blocks[i]));
      if (!s.ok()) return s;
      if (!finishes) _exit(0);
    }
    return store.FinishSave(*std::move(save)).status();
  }

  void DoOne(SessionStore& store) {
    const std::string name = NameOf(random_());
    const size_t n_bytes = random_() % most_bytes_;
    const uint64_t what = random_() % 10;
    if (what < 6) {
      const Status s = Save(store, name, n_bytes, true);
      ASSERT_TRUE(s.ok() || s.code() == StatusCode::kOutOfMemory ||
                  s.code() == StatusCode::kIo)
          << s.message();
      ++(s.ok() ? n_saved : n_refused);
    } else if (what < 8) {
      static_cast<void>(store.Remove(SessionId(TestOwner().tag, name)));
    } else if (what < 9) {
      static_cast<void>(store.FindPrefix(
          {TestOwner(), TestFingerprint(), TestTokens(100, version_)}));
    } else {
      // Dies in the middle of a save.
      const pid_t child = fork();
      if (child == 0) {
        const auto folder = OpenLocalFolder(path_);
        const auto own = SessionStore::Open(**folder, SystemClock(), options_);
        if (own.ok()) static_cast<void>(Save(**own, name, n_bytes, false));
        _exit(0);
      }
      waitpid(child, nullptr, 0);
      ++n_crashed;
    }
  }

  void CheckUse(SessionStore& store) {
    uint64_t on_disk = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      struct stat info;
      if (stat(entry.path().c_str(), &info) == 0) {
        on_disk += static_cast<uint64_t>(info.st_blocks) * 512;
      }
    }
    ASSERT_LE(on_disk, std::min(options_.quota_bytes, kDiskBytes));
    ASSERT_EQ(*store.UsedBytes(), on_disk);
  }

  void CheckContents(SessionStore& store) {
    const auto records = store.List();
    ASSERT_TRUE(records.ok()) << records.status().message();
    for (const SessionRecord& record : *records) {
      const auto reader = store.OpenSession(record.id, {});
      ASSERT_TRUE(reader.ok()) << reader.status().message();
      const auto version =
          static_cast<uint32_t>((*reader)->text().tokens[0]) / 1000;
      const auto& blocks = (*reader)->blocks();
      ASSERT_EQ(blocks.size(), 2u);
      const Status s = CheckTestBlocks(
          **reader, version, {blocks[0].stored_bytes, blocks[1].stored_bytes});
      ASSERT_TRUE(s.ok()) << s.message();
    }
    ASSERT_EQ(store.counters().damaged, 0u);
  }

  const std::string path_;
  const StoreOptions options_;
  const size_t most_bytes_;  // of a session
  std::mt19937_64 random_{7};
  uint32_t version_ = 0;
};

// On a disk of its own, in a child of the test.
void RunOnSmallDisk(const StoreOptions& options, size_t most_bytes) {
  const TempFolder disk;
  const pid_t child = fork();
  if (child == 0) {
    const std::string root = disk.File("");
    if (!MountDisk(root)) _exit(kMayNotMount);
    Mix mix(disk.File("sessions"), options, most_bytes);
    mix.Run(SecondsPerMix());
    EXPECT_GT(mix.n_saved, 20u);
    EXPECT_EQ(mix.n_refused > 0,
              most_bytes > options.quota_bytes || most_bytes > kDiskBytes);
    EXPECT_GT(mix.n_crashed, 3u);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFEXITED(state)) << "ended by signal " << WTERMSIG(state);
  if (WEXITSTATUS(state) == kMayNotMount) {
    GTEST_SKIP() << "no disk may be mounted here";
  }
  EXPECT_EQ(WEXITSTATUS(state), 0);
}

TEST(SessionSoakTest, TheQuotaHoldsThroughAnyMix) {
  RunOnSmallDisk({.quota_bytes = 6 << 20,
                  .min_free_bytes = 0,
                  .durability = Durability::kNone},
                 2'500'000);
}

TEST(SessionSoakTest, AFullDiskLosesNothingThatWasKept) {
  RunOnSmallDisk({.quota_bytes = 64 << 20,
                  .min_free_bytes = 0,
                  .durability = Durability::kNone},
                 9'000'000);
}

}  // namespace
}  // namespace lkv
