// A store on real disks: what du says, what killed processes leave, and both
// implementations of BlockIo while other threads read (under TSan, too).
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "io/open_block_io.h"
#include "store/record_store.h"
#include "store/testing_records.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

namespace fs = std::filesystem;
using State = RecordState;
using Method = BlockIoOptions::Method;

// What du counts of a file.
uint64_t DiskBytes(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

struct DiskStore {
  explicit DiskStore(const std::string& path, Method method = Method::kBest,
                     RecordStore::Options options = TestRecordOptions()) {
    auto folder = OpenLocalFolder(path);
    EXPECT_TRUE(folder.ok()) << folder.status().message();
    auto opened = OpenBlockIo(**folder, {.method = method});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    block_io = *std::move(opened);
    options.read_alignment = block_io.read_alignment;
    store = CreateStore(*block_io.io, options);
  }
  OpenedBlockIo block_io;
  std::unique_ptr<RecordStore> store;
};

// Waits for what is under way.
void Settle(DiskStore& disk) {
  while (disk.block_io.io->n_pending() > 0) {
    disk.block_io.io->Wait(1000);
    disk.store->Poll();
  }
}

TEST(RecordStoreDiskTest, OnASmallDiskTheAccountEqualsDuAndTheQuotaHolds) {
  const TempFolder temp;
  const std::string place = temp.File("mount");
  fs::create_directory(place);
  if (mount("none", place.c_str(), "tmpfs", 0, "size=4m,mode=0700") != 0) {
    GTEST_SKIP() << "may not mount";
  }
  {
    RecordStore::Options options = TestRecordOptions();
    options.disk_bytes_max = 1 << 20;
    DiskStore disk(place, Method::kBest, options);
    std::mt19937_64 random(1);
    std::vector<RecordId> ids;
    for (int round = 0; round < 3000; ++round) {
      disk.store->Poll();
      for (const RecordId id : ids) {
        if (disk.store->state(id) == State::kResident) disk.store->Drop(id);
      }
      if (const auto id = PutNumber(*disk.store, 1)) ids.push_back(*id);
      if (!ids.empty() && random() % 100 < (ids.size() > 250 ? 80 : 20)) {
        const size_t i = random() % ids.size();
        disk.store->Release(ids[i]);
        ids[i] = ids.back();
        ids.pop_back();
      }
      ASSERT_LE(DiskBytes(disk.block_io.file->path()), options.disk_bytes_max);
      if (round % 100 != 99) continue;
      Settle(disk);
      ASSERT_EQ(DiskBytes(disk.block_io.file->path()),
                disk.store->counters().disk_bytes);
    }
    EXPECT_GT(disk.store->counters().n_segments_written, 16u);
    EXPECT_GT(disk.store->counters().n_writes_refused, 0u);
  }
  EXPECT_TRUE(fs::is_empty(place) || fs::exists(place + "/lock"));
  umount(place.c_str());
}

TEST(RecordStoreDiskTest, WhenOthersFillTheDiskWhatIsStoredStaysUsable) {
  const TempFolder temp;
  const std::string place = temp.File("mount");
  fs::create_directory(place);
  if (mount("none", place.c_str(), "tmpfs", 0, "size=1m,mode=0700") != 0) {
    GTEST_SKIP() << "may not mount";
  }
  {
    DiskStore disk(place);  // its quota is 8 MiB
    std::vector<RecordId> ids;
    uint64_t number = 0;
    while (disk.store->refusal().ok() || disk.block_io.io->n_pending() > 0) {
      disk.store->Poll();
      for (const RecordId id : ids) {
        if (disk.store->state(id) == State::kResident) disk.store->Drop(id);
      }
      if (const auto id = PutNumber(*disk.store, number)) {
        ids.push_back(*id);
        ++number;
      }
    }
    EXPECT_GT(number, 200u);
    uint32_t n_read = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (disk.store->state(ids[i]) == State::kOnDisk) {
        if (disk.store->Fetch({&ids[i], 1}) == 0) continue;  // no frame
        disk.store->Await(ids[i]);
        ASSERT_EQ(disk.store->state(ids[i]), State::kArrived);
        disk.store->Show(ids[i]);
        ASSERT_TRUE(HoldsNumber(i, disk.store->data(ids[i])));
        disk.store->Drop(ids[i]);
      } else {
        ASSERT_TRUE(HoldsNumber(i, disk.store->data(ids[i])));
      }
      ++n_read;
    }
    EXPECT_GT(n_read, 20u);
  }
  umount(place.c_str());
}

TEST(RecordStoreDiskTest, AKilledProcessLeavesNothingThatTheNextDoesNotRemove) {
  const TempFolder temp;
  const std::string path = temp.File("ours");
  std::mt19937_64 random(1);
  for (int round = 0; round < 30; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      DiskStore disk(path, round % 2 == 0 ? Method::kBest : Method::kThreads);
      if (write(ends[1], "x", 1) != 1) _exit(1);
      while (true) {
        const auto id = PutNumber(*disk.store, 1);
        disk.store->Poll();
        if (id.has_value()) disk.store->Release(*id);
      }
    }
    char ready = 0;
    ASSERT_EQ(read(ends[0], &ready, 1), 1);
    const timespec rest = {.tv_sec = 0,
                           .tv_nsec = static_cast<long>(random() % 4'000'000)};
    nanosleep(&rest, nullptr);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ends[0]);
    close(ends[1]);
  }
  // The kernel holds a file until it has ended what was under way in the ring,
  // which may be after the process is gone.
  size_t n_files = 0;
  for (int i = 0; i < 1000 && n_files != 1; ++i) {
    const DiskStore disk(path);
    n_files = 0;
    for (const auto& entry : fs::directory_iterator(path)) {
      n_files += IsScratchName(entry.path().filename().string()) ? 1 : 0;
    }
  }
  EXPECT_EQ(n_files, 1u) << "its own";
  for (const auto& entry : fs::directory_iterator(path)) {
    EXPECT_EQ(entry.path().filename().string(), kFolderLockName);
  }
}

class RecordStoreThreadsTest : public testing::TestWithParam<Method> {};

// As in a decode step: one thread moves records, several read those that are
// pinned, the disk (or its threads) works beside them.
TEST_P(RecordStoreThreadsTest, OthersReadWhatIsPinned) {
  constexpr uint32_t kReaders = 3;
  constexpr uint32_t kRecords = 300;
  const TempFolder temp;
  DiskStore disk(temp.File("ours"), GetParam());
  RecordStore& store = *disk.store;
  std::mt19937_64 random(1);
  std::vector<RecordId> ids;
  while (ids.size() < kRecords) {
    store.Poll();
    for (const RecordId id : ids) {
      if (store.state(id) == State::kResident) store.Drop(id);
    }
    if (const auto id = PutNumber(store, ids.size())) ids.push_back(*id);
  }
  Settle(disk);
  uint64_t n_read = 0;
  for (int step = 0; step < 150; ++step) {
    store.Poll();
    std::vector<size_t> pinned;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (store.state(ids[i]) == State::kArrived) store.Show(ids[i]);
      if (RecordTable::IsReadable(store.state(ids[i]))) pinned.push_back(i);
    }
    for (const size_t i : pinned) store.Pin(ids[i]);
    std::vector<RecordId> wanted;
    for (uint32_t i = 0; i < 8; ++i) {
      const RecordId id = ids[random() % ids.size()];
      const bool is_new =
          std::find(wanted.begin(), wanted.end(), id) == wanted.end();
      if (is_new && store.state(id) == State::kOnDisk) wanted.push_back(id);
    }
    store.Fetch(wanted);
    std::atomic<size_t> next{0};
    std::atomic<size_t> n_wrong{0};
    {
      std::vector<std::jthread> readers;
      for (uint32_t r = 0; r < kReaders; ++r) {
        readers.emplace_back([&] {
          for (size_t i; (i = next++) < pinned.size();) {
            const bool is_right =
                HoldsNumber(pinned[i], store.data(ids[pinned[i]]));
            n_wrong += is_right ? 0 : 1;
          }
        });
      }
    }
    ASSERT_EQ(n_wrong, 0u);
    n_read += pinned.size();
    for (const size_t i : pinned) store.Unpin(ids[i]);
    for (const size_t i : pinned) {
      if (store.state(ids[i]) == State::kResident && random() % 2 == 0) {
        store.Drop(ids[i]);
      }
    }
  }
  EXPECT_GT(n_read, 300u);
  EXPECT_GT(store.counters().n_fetches, 100u);
  EXPECT_EQ(store.counters().n_checksums_wrong, 0u);
  EXPECT_EQ(store.counters().n_waits, 0u);
  EXPECT_LE(DiskBytes(disk.block_io.file->path()),
            TestRecordOptions().disk_bytes_max);
}

INSTANTIATE_TEST_SUITE_P(All, RecordStoreThreadsTest,
                         testing::Values(Method::kBest, Method::kThreads),
                         [](const auto& info) {
                           return info.param == Method::kBest ? "Best"
                                                              : "Threads";
                         });

}  // namespace
}  // namespace lkv
