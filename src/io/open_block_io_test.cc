#include "io/open_block_io.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "io/io_buffer.h"
#include "testing/deny_io_uring.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

namespace fs = std::filesystem;

// Opens, then writes and reads a block. Returns what is in use, or why nothing
// is.
std::string Use(const std::string& path, const BlockIoOptions& options = {}) {
  auto folder = OpenLocalFolder(path);
  if (!folder.ok()) return std::string(folder.status().message());
  auto opened = OpenBlockIo(**folder, options);
  if (!opened.ok()) return std::string(opened.status().message());
  if (fs::file_size(opened->file->path()) != 0) return "the probe is left";
  IoBuffer block(kIoBlockBytes);
  for (const auto kind : {IoRequest::Kind::kWrite, IoRequest::Kind::kRead}) {
    std::fill_n(block.data(), kIoBlockBytes,
                static_cast<uint8_t>(kind == IoRequest::Kind::kWrite));
    const IoRequest request = {
        .kind = kind, .data = block.data(), .n_bytes = kIoBlockBytes};
    opened->io->Submit({&request, 1});
    IoCompletion completion;
    while (opened->io->Poll({&completion, 1}) == 0) opened->io->Wait(1000);
    if (completion.outcome != IoCompletion::Outcome::kDone) return "failed";
  }
  return block.data()[17] == 1 ? opened->description : "other bytes";
}

// Runs in a process of its own what cannot be undone; its text comes back.
template <typename Fn>
std::string InAChild(Fn fn) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = fn();
    _exit(write(ends[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  close(ends[1]);
  char text[2048];
  std::string all;
  for (ssize_t n; (n = read(ends[0], text, sizeof(text))) > 0;) {
    all.append(text, static_cast<size_t>(n));
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return all;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(OpenBlockIoTest, TheThreadsWorkWhereTheyAreAskedFor) {
  const TempFolder temp;
  const std::string text =
      Use(temp.File("ours"), {.method = BlockIoOptions::Method::kThreads});
  EXPECT_TRUE(text.starts_with("8 threads, ")) << text;
}

TEST(OpenBlockIoTest, WithoutTheRingThreadsReadAndTheReasonIsSaid) {
  const TempFolder temp;
  const std::string text = InAChild([&]() -> std::string {
    return DenyIoUring() ? Use(temp.File("ours")) : "no filter";
  });
  if (text == "no filter") GTEST_SKIP() << text;
  EXPECT_TRUE(text.starts_with("8 threads (io_uring: ")) << text;
  EXPECT_TRUE(Contains(text, "Operation not permitted")) << text;
  EXPECT_TRUE(Contains(text, "seccomp")) << text;
}

TEST(OpenBlockIoTest, AFileSystemThatPassesNoCacheIsUsedThroughIt) {
  // ramfs has no O_DIRECT.
  const TempFolder temp;
  fs::create_directory(temp.File("mount"));
  if (mount("none", temp.File("mount").c_str(), "ramfs", 0, "") != 0) {
    GTEST_SKIP() << "may not mount";
  }
  const std::string text = Use(temp.File("mount/ours"));
  umount(temp.File("mount").c_str());
  EXPECT_TRUE(Contains(text, ", through the page cache (past it: ")) << text;
}

TEST(OpenBlockIoTest, AFullOrReadOnlyFileSystemIsNamedWithARemedy) {
  const TempFolder temp;
  const std::string place = temp.File("mount");
  fs::create_directory(place);
  if (mount("none", place.c_str(), "tmpfs", 0, "size=4096,mode=0700") != 0) {
    GTEST_SKIP() << "may not mount";
  }
  const std::string full = Use(place);
  mount("none", place.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "");
  const std::string read_only = Use(place);
  umount(place.c_str());
  EXPECT_TRUE(Contains(full, "No space left on device")) << full;
  EXPECT_TRUE(Contains(full, "; check the disk and its free space")) << full;
  EXPECT_TRUE(Contains(full, place)) << full;
  EXPECT_TRUE(Contains(read_only, "Read-only file system")) << read_only;
  EXPECT_TRUE(Contains(read_only, place)) << read_only;
}

TEST(OpenBlockIoTest, AForeignOrUnwritableFolderIsNamedWithARemedy) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may give folders away";
  const TempFolder temp;
  const std::string ours = temp.File("ours");
  fs::create_directory(ours);
  ASSERT_EQ(chown(ours.c_str(), 1234, 1234), 0);
  EXPECT_TRUE(Contains(Use(ours), "belongs to another user; give"))
      << Use(ours);
  // As a user who may enter the folder but not write in it.
  ASSERT_EQ(chmod(ours.c_str(), 0500), 0);
  fs::permissions(temp.File("."), fs::perms(0755));
  const std::string text = InAChild([&]() -> std::string {
    if (setgid(1234) != 0 || setuid(1234) != 0) return "no user";
    return Use(ours);
  });
  EXPECT_TRUE(Contains(text, "Permission denied")) << text;
  EXPECT_TRUE(Contains(text, ours)) << text;
}

}  // namespace
}  // namespace lkv
