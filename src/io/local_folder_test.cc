#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "io/folder.h"
#include "io/io_buffer.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

namespace fs = std::filesystem;

class LocalFolderTest : public testing::Test {
 protected:
  std::unique_ptr<Folder> Open() {
    auto folder = OpenLocalFolder(path_);
    EXPECT_TRUE(folder.ok()) << folder.status().message();
    return *std::move(folder);
  }
  // Why the folder is refused.
  static std::string Refusal(const std::string& path) {
    const auto folder = OpenLocalFolder(path);
    EXPECT_FALSE(folder.ok());
    return std::string(folder.status().message());
  }
  static void Write(Folder& folder, const std::string& name, size_t n_bytes) {
    auto file = folder.Create(name);
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_TRUE((*file)->Append(std::vector<uint8_t>(n_bytes, 'x')).ok());
    ASSERT_TRUE((*file)->Sync().ok());
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(lstat(path.c_str(), &info), 0);
    return info.st_mode & 07777;
  }

  TempFolder temp_;
  const std::string path_ = temp_.File("ours");
};

TEST_F(LocalFolderTest, MakesFolderAndFilesForTheirOwnerAlone) {
  const auto folder = Open();
  Write(*folder, "a", 1);
  EXPECT_EQ(ModeOf(path_), 0700u);
  EXPECT_EQ(ModeOf(path_ + "/a"), 0600u);
  ASSERT_TRUE(folder->Lock().ok());
  EXPECT_EQ(ModeOf(path_ + "/lock"), 0600u);
}

TEST_F(LocalFolderTest, KnowsItsPathWhateverLeadsToIt) {
  const std::string link = temp_.File("link");
  fs::create_directory(temp_.File("real"));
  fs::create_directory_symlink(temp_.File("real"), link);
  const auto folder = OpenLocalFolder(link + "/ours");
  ASSERT_TRUE(folder.ok()) << "only the last component may be no link";
  EXPECT_EQ((*folder)->path(),
            fs::canonical(temp_.File("real")).string() + "/ours");
}

TEST_F(LocalFolderTest, RefusesAFolderThatOthersMayEnter) {
  fs::create_directory(path_);
  for (const mode_t mode : {0710, 0705, 0777}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    EXPECT_NE(Refusal(path_).find("0700"), std::string::npos);
  }
  ASSERT_EQ(chmod(path_.c_str(), 0700), 0);
  EXPECT_TRUE(OpenLocalFolder(path_ + "/").ok());
}

TEST_F(LocalFolderTest, RefusesAFolderOfAnotherUser) {
  fs::create_directory(path_);
  ASSERT_EQ(chmod(path_.c_str(), 0700), 0);
  if (chown(path_.c_str(), 65534, 65534) != 0) {
    GTEST_SKIP() << "only root may give a folder away";
  }
  EXPECT_NE(Refusal(path_).find("another user"), std::string::npos);
}

TEST_F(LocalFolderTest, RefusesASymbolicLinkToAFolder) {
  fs::create_directory(temp_.File("real"));
  ASSERT_EQ(chmod(temp_.File("real").c_str(), 0700), 0);
  fs::create_directory_symlink(temp_.File("real"), path_);
  EXPECT_NE(Refusal(path_).find("symbolic link"), std::string::npos);
  EXPECT_NE(Refusal(path_ + "/").find("symbolic link"), std::string::npos)
      << "a slash would have it followed";
}

TEST_F(LocalFolderTest, RefusesWhatIsNoFolder) {
  std::ofstream(path_) << "text";
  EXPECT_NE(Refusal(path_).find("not a folder"), std::string::npos);
  EXPECT_NE(Refusal(temp_.File("no/such")).find("cannot be made"),
            std::string::npos);
}

TEST_F(LocalFolderTest, FollowsNoSymbolicLinkToAFile) {
  const auto folder = Open();
  std::ofstream(temp_.File("victim")) << "text";
  fs::create_symlink(temp_.File("victim"), path_ + "/a");
  fs::create_symlink(temp_.File("new"), path_ + "/b");
  EXPECT_EQ(folder->Open("a").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(folder->Protect("a", Protection::kProtected).code(),
            StatusCode::kCorrupt);
  EXPECT_FALSE(folder->Create("a").ok());
  EXPECT_FALSE(folder->Create("b").ok()) << "nor a dangling one";
  EXPECT_FALSE(fs::exists(temp_.File("new")));
  fs::create_symlink(temp_.File("victim"), path_ + "/lock");
  EXPECT_FALSE(folder->Lock().ok());
  EXPECT_TRUE(folder->List()->empty());
}

TEST_F(LocalFolderTest, OpensNothingButRegularFiles) {
  const auto folder = Open();
  ASSERT_EQ(mkfifo((path_ + "/pipe").c_str(), 0600), 0);
  fs::create_directory(path_ + "/inner");
  EXPECT_EQ(folder->Open("pipe").status().code(), StatusCode::kCorrupt)
      << "and does not wait for a writer";
  EXPECT_EQ(folder->Open("inner").status().code(), StatusCode::kCorrupt);
}

TEST_F(LocalFolderTest, CountsTheBytesThatDuCounts) {
  const auto folder = Open();
  Write(*folder, "a", 100'000);
  const uint64_t used_bytes = folder->List()->at(0).used_bytes;
  EXPECT_GE(used_bytes, 100'000u);
  struct stat info = {};
  ASSERT_EQ(stat((path_ + "/a").c_str(), &info), 0);
  EXPECT_EQ(used_bytes, static_cast<uint64_t>(info.st_blocks) * 512);
}

TEST_F(LocalFolderTest, TriesDirectReadingOnceAndSaysWhatCameOfIt) {
  const auto folder = Open();
  Write(*folder, "empty", 0);
  Write(*folder, "a", 3 * kIoBlockBytes);
  EXPECT_EQ(folder->read_path(), ReadPath::kUnknown);
  ASSERT_TRUE(folder->Open("empty").ok());
  EXPECT_EQ(folder->read_path(), ReadPath::kUnknown) << "nothing to read";
  ASSERT_TRUE(folder->Open("a").ok());
  const int direct =
      open((path_ + "/a").c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  EXPECT_EQ(folder->read_path(),
            direct >= 0 ? ReadPath::kDirect : ReadPath::kBuffered);
  if (direct >= 0) close(direct);
}

TEST_F(LocalFolderTest, TheEndOfAFileSpoilsNoDirectReading) {
  const auto folder = Open();
  Write(*folder, "a", 2 * kIoBlockBytes + 100);
  const auto file = folder->Open("a");
  const ReadPath before = folder->read_path();
  IoBuffer buffer(3 * kIoBlockBytes);
  EXPECT_EQ((*file)->ReadAt(0, buffer.span()).code(), StatusCode::kCorrupt);
  EXPECT_TRUE((*file)->ReadAt(0, buffer.span().first(2 * kIoBlockBytes)).ok());
  EXPECT_EQ(folder->read_path(), before);
}

// Whole blocks come from the page cache as far as it has them, then from the
// disk.
TEST_F(LocalFolderTest, ReadsTheSameFromTheCacheAndFromTheDisk) {
  constexpr size_t kBytes = 64 * kIoBlockBytes;
  const auto folder = Open();
  std::vector<uint8_t> expected(kBytes);
  for (size_t i = 0; i < kBytes; ++i) {
    expected[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  }
  {
    auto file = folder->Create("a");
    ASSERT_TRUE((*file)->Append(expected).ok());
    ASSERT_TRUE((*file)->Sync().ok());
  }
  const auto forget = [&] {
    const int fd = open((path_ + "/a").c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
  };
  const auto file = folder->Open("a");
  for (const size_t n_cached : {size_t{0}, size_t{1}, size_t{5}, size_t{64}}) {
    forget();
    std::vector<uint8_t> unaligned(n_cached * kIoBlockBytes + 1);
    ASSERT_TRUE((*file)->ReadAt(0, std::span(unaligned).subspan(1)).ok());
    IoBuffer buffer(kBytes);
    ASSERT_TRUE((*file)->ReadAt(0, buffer.span()).ok());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), buffer.data()))
        << n_cached;
  }
}

// Runs `body` in another process; whether it returned true.
template <typename Body>
bool InAnotherProcess(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int state = 0;
  EXPECT_EQ(waitpid(child, &state, 0), child);
  return WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

TEST_F(LocalFolderTest, OtherProcessesSeeWhatIsInUse) {
  const auto folder = Open();
  auto file = folder->Create("a");
  ASSERT_TRUE(file.ok());
  const auto is_in_use = [&] {
    const auto other = OpenLocalFolder(path_);
    return other.ok() && *(*other)->IsInUse("a");
  };
  EXPECT_TRUE(InAnotherProcess(is_in_use));
  file->reset();
  EXPECT_FALSE(InAnotherProcess(is_in_use));
}

TEST_F(LocalFolderTest, TheLockOfADeadProcessIsFree) {
  EXPECT_TRUE(InAnotherProcess([&] {
    auto folder = OpenLocalFolder(path_);
    return folder.ok() && (*folder)->Lock().value() != nullptr;
  }));
  EXPECT_TRUE(Open()->Lock().ok());
}

TEST_F(LocalFolderTest, TheLockKeepsOtherProcessesOut) {
  const auto folder = Open();
  auto lock = folder->Lock();
  ASSERT_TRUE(lock.ok());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto other = OpenLocalFolder(path_);
    const bool is_locked = (*other)->Lock().ok();
    _exit(write(ends[1], is_locked ? "l" : "r", 1) == 1 ? 0 : 1);
  }
  close(ends[1]);
  // The child cannot have written before the lock is let go.
  ASSERT_EQ(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
  char said = 0;
  EXPECT_EQ(read(ends[0], &said, 1), -1);
  lock->reset();
  ASSERT_EQ(fcntl(ends[0], F_SETFL, 0), 0);
  EXPECT_EQ(read(ends[0], &said, 1), 1);
  EXPECT_EQ(said, 'l');
  close(ends[0]);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace lkv
