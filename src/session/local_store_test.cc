// Stores on a disk: the catalogue as a file, several stores in one folder, and
// the quota against what the files take.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "session/session_store.h"
#include "session/store_files.h"
#include "session/testing_sessions.h"
#include "testing/manual_clock.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

namespace fs = std::filesystem;

class LocalStoreTest : public testing::Test {
 protected:
  // A folder and a store in it, as one process has them.
  struct Opened {
    std::unique_ptr<Folder> folder;
    std::unique_ptr<SessionStore> store;
    SessionStore* operator->() const { return store.get(); }
    SessionStore& operator*() const { return *store; }
  };
  Opened Open() {
    Opened opened;
    auto folder = OpenLocalFolder(path_);
    EXPECT_TRUE(folder.ok()) << folder.status().message();
    opened.folder = *std::move(folder);
    auto store = SessionStore::Open(*opened.folder, clock_, options_);
    EXPECT_TRUE(store.ok()) << store.status().message();
    opened.store = *std::move(store);
    return opened;
  }
  static Status Save(SessionStore& store, const std::string& name,
                     size_t n_bytes = 1000, uint32_t n_tokens = 100) {
    auto save =
        store.BeginSave(TestSpec(name, 1, n_tokens), TestBound({n_bytes}));
    if (!save.ok()) return save.status();
    BlockInfo info;
    info.n_bytes = n_bytes;
    Status s = save->Append(info, TestBlock(1, 0, n_bytes));
    return s.ok() ? store.FinishSave(*std::move(save)).status() : s;
  }
  static std::string Names(SessionStore& store) {
    std::string names;
    const auto records = store.List();
    EXPECT_TRUE(records.ok()) << records.status().message();
    if (!records.ok()) return "failed";
    for (const SessionRecord& record : *records) names += record.name;
    return names;
  }
  // As `du` counts.
  uint64_t UsedBytes() const {
    uint64_t n_bytes = 0;
    for (const auto& entry : fs::directory_iterator(path_)) {
      struct stat info = {};
      EXPECT_EQ(lstat(entry.path().c_str(), &info), 0);
      n_bytes += static_cast<uint64_t>(info.st_blocks) * 512;
    }
    return n_bytes;
  }

  TempFolder temp_;
  const std::string path_ = temp_.File("sessions");
  const std::string catalogue_path_ = path_ + "/catalogue.db";
  ManualClock clock_;
  StoreOptions options_ = {.min_free_bytes = 0};
};

TEST_F(LocalStoreTest, AllFilesAreTheirOwnersAlone) {
  const Opened store = Open();
  ASSERT_TRUE(Save(*store, "a").ok());
  for (const auto& entry : fs::directory_iterator(path_)) {
    EXPECT_EQ(entry.status().permissions() & fs::perms::all,
              fs::perms::owner_read | fs::perms::owner_write)
        << entry.path();
  }
}

TEST_F(LocalStoreTest, UsesAndHitsAreKeptInTheCatalogue) {
  {
    const Opened store = Open();
    for (const char* name : {"a", "b", "c"}) {
      ASSERT_TRUE(Save(*store, name).ok());
    }
    ASSERT_TRUE(store->CountHit(SessionId(TestOwner().tag, "a")).ok());
  }
  const Opened store = Open();
  EXPECT_EQ(Names(*store), "bca");
  EXPECT_EQ(store->List()->at(2).n_hits, 1u);
  EXPECT_EQ(store->counters().rebuilt_catalogues, 0u);
}

TEST_F(LocalStoreTest, ACatalogueThatIsGoneIsMadeAnew) {
  {
    const Opened store = Open();
    clock_.unix_seconds += 10;
    ASSERT_TRUE(Save(*store, "b").ok());
    clock_.unix_seconds += 10;
    ASSERT_TRUE(Save(*store, "a").ok());
    ASSERT_TRUE(
        store->Pin(SessionId(TestOwner().tag, "a"), Protection::kProtected)
            .ok());
  }
  fs::remove(catalogue_path_);
  const Opened store = Open();
  EXPECT_EQ(Names(*store), "ba");
  EXPECT_TRUE(store->List()->at(1).is_pinned);
  EXPECT_EQ(
      store->FindPrefix({TestOwner(), TestFingerprint(), TestTokens(100, 1)})
          .n_tokens,
      100u);
}

TEST_F(LocalStoreTest, ACatalogueThatIsNoneIsMadeAnew) {
  {
    const Opened store = Open();
    ASSERT_TRUE(Save(*store, "a").ok());
  }
  const std::string other = temp_.File("other");
  const std::function<void()> harms[] = {
      [&] { std::ofstream(catalogue_path_) << std::string(9000, 'x'); },
      [&] { fs::resize_file(catalogue_path_, 5000); },
      [&] { fs::resize_file(catalogue_path_, 0); },
      [&] {
        fs::remove(catalogue_path_);
        std::ofstream(other) << "text";
        fs::create_symlink(other, catalogue_path_);
      },
  };
  for (const auto& harm : harms) {
    harm();
    const Opened store = Open();
    EXPECT_EQ(Names(*store), "a");
    EXPECT_FALSE(fs::is_symlink(catalogue_path_));
  }
  EXPECT_EQ(fs::file_size(other), 4u) << "nothing is written through a link";
}

TEST_F(LocalStoreTest, WithoutACatalogueOnTheDiskItIsInMemory) {
  {
    const Opened store = Open();
    ASSERT_TRUE(Save(*store, "a").ok());
  }
  fs::remove(catalogue_path_);
  fs::create_directories(catalogue_path_ + "/in the way");
  const Opened store = Open();
  EXPECT_EQ(Names(*store), "a");
  ASSERT_TRUE(Save(*store, "b").ok());
  EXPECT_EQ(Names(*store), "ab");
}

TEST_F(LocalStoreTest, ACatalogueDamagedInUseIsMadeAnew) {
  const Opened store = Open();
  for (int i = 0; i < 20; ++i) {
    ++clock_.unix_seconds;
    ASSERT_TRUE(
        Save(*store, std::string(1, static_cast<char>('a' + i)), 10, 64 * 50)
            .ok());
  }
  // All pages but the first become rubbish, under the feet of the store.
  const auto n_bytes = fs::file_size(catalogue_path_);
  std::fstream file(catalogue_path_,
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096);
  file << std::string(n_bytes - 4096, '\xee');
  file.seekp(24);  // the number by which others see that it was changed
  file << "zzzz";
  file.close();
  EXPECT_EQ(Names(*store), "abcdefghijklmnopqrst");
  EXPECT_EQ(store->counters().rebuilt_catalogues, 1u);
  ASSERT_TRUE(Save(*store, "u").ok());
}

TEST_F(LocalStoreTest, TwoStoresInOneFolderSeeTheSame) {
  const Opened one = Open(), other = Open();
  ASSERT_TRUE(Save(*one, "a").ok());
  EXPECT_EQ(Names(*other), "a");
  ASSERT_TRUE(Save(*other, "b").ok());
  ASSERT_TRUE(one->CountHit(SessionId(TestOwner().tag, "a")).ok());
  EXPECT_EQ(Names(*other), "ba");
  ASSERT_TRUE(other->Remove(SessionId(TestOwner().tag, "a")).ok());
  EXPECT_EQ(Names(*one), "b");
  // And when one of them makes the catalogue anew.
  fs::remove(catalogue_path_);
  EXPECT_EQ(Names(*one), "b");
  ASSERT_TRUE(Save(*other, "c").ok());
  EXPECT_EQ(Names(*one), "bc");
}

TEST_F(LocalStoreTest, TheQuotaHoldsForAllFilesOfAllStoresTogether) {
  options_.quota_bytes = 8 << 20;
  const Opened one = Open(), other = Open();
  std::mt19937_64 random(3);
  uint32_t n_saved = 0, n_refused = 0;
  for (int i = 0; i < 150; ++i) {
    SessionStore& store = random() % 2 == 0 ? *one : *other;
    const std::string name(1, static_cast<char>('a' + random() % 20));
    const size_t n_bytes = random() % 3'000'000;
    const auto n_tokens = static_cast<uint32_t>(random() % 8000);
    const Status s = Save(store, name, n_bytes, n_tokens);
    ASSERT_TRUE(s.ok() || s.code() == StatusCode::kOutOfMemory) << s.message();
    ++(s.ok() ? n_saved : n_refused);
    if (random() % 8 == 0) {
      static_cast<void>(store.Pin(
          SessionId(TestOwner().tag, name),
          random() % 3 == 0 ? Protection::kProtected : Protection::kNone));
    }
    ASSERT_LE(UsedBytes(), options_.quota_bytes);
    ASSERT_EQ(*store.UsedBytes(), UsedBytes());
  }
  EXPECT_GT(n_saved, 100u);
  EXPECT_GT(one->counters().made_room + other->counters().made_room, 20u);
  const auto records = one->List();
  for (const SessionRecord& record : *records) {
    EXPECT_TRUE(one->Verify(record.id).ok());
  }
}

TEST_F(LocalStoreTest, ASessionUnderWayCountsBeforeItIsWritten) {
  options_.quota_bytes = 4 << 20;
  const Opened one = Open(), other = Open();
  const auto save = one->BeginSave(TestSpec("a"), TestBound({2'500'000}));
  ASSERT_TRUE(save.ok());
  EXPECT_GE(UsedBytes(), 2'500'000u);
  EXPECT_EQ(Save(*other, "b", 2'000'000).code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(Save(*other, "b", 1'000'000).ok());
}

// Both take turns, and neither sees half of what the other does.
TEST_F(LocalStoreTest, TwoProcessesInOneFolderDoEachOtherNoHarm) {
  options_.quota_bytes = 1 << 20;
  options_.durability = Durability::kNone;
  const auto live = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    const Opened store = Open();
    for (int i = 0; i < 100; ++i) {
      const std::string name(1, static_cast<char>('a' + random() % 12));
      const Status s = Save(*store, name, random() % 200'000);
      if (!s.ok() && s.code() != StatusCode::kOutOfMemory) return false;
      const PrefixMatch match = store->FindPrefix(
          {TestOwner(), TestFingerprint(), TestTokens(100, 1)});
      if (match.session == nullptr) return false;
      if (!match.session->Verify().ok()) return false;
      if (random() % 5 == 0) {
        static_cast<void>(store->Remove(SessionId(TestOwner().tag, name)));
        if (!Save(*store, "z", 10).ok()) return false;
      }
    }
    return store->counters().damaged == 0;
  };
  { ASSERT_TRUE(Save(*Open(), "z", 10).ok()); }
  const pid_t child = fork();
  if (child == 0) _exit(live(1) ? 0 : 1);
  EXPECT_TRUE(live(2));
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  EXPECT_LE(UsedBytes(), options_.quota_bytes);
}

}  // namespace
}  // namespace lkv
