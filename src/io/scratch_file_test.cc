#include "io/scratch_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "testing/test_paths.h"

namespace lkv {
namespace {

namespace fs = std::filesystem;

class ScratchFileTest : public testing::Test {
 protected:
  void SetUp() override {
    auto folder = OpenLocalFolder(temp_.File("ours"));
    ASSERT_TRUE(folder.ok());
    folder_ = *std::move(folder);
  }
  std::unique_ptr<ScratchFile> Create() {
    auto file = ScratchFile::Create(*folder_);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return *std::move(file);
  }
  size_t NFiles() {
    const auto entries = folder_->List();
    EXPECT_TRUE(entries.ok());
    size_t n_files = 0;
    for (const FolderEntry& entry : *entries) {
      n_files += IsScratchName(entry.name) ? 1 : 0;
    }
    return n_files;
  }

  TempFolder temp_;
  std::unique_ptr<Folder> folder_;
};

TEST_F(ScratchFileTest, IsItsOwnersAloneAndGoneWithTheObject) {
  auto file = Create();
  struct stat info = {};
  ASSERT_EQ(lstat(file->path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_TRUE(IsScratchName(fs::path(file->path()).filename().string()));
  file.reset();
  EXPECT_EQ(NFiles(), 0u);
}

TEST_F(ScratchFileTest, LeavesFilesInUseAndOtherFilesAlone) {
  std::ofstream(temp_.File("ours/session")) << "x";
  std::ofstream(temp_.File("ours/0123.scratch")) << "x";
  const auto mine = Create();
  const auto other = Create();
  EXPECT_NE(mine->path(), other->path());
  EXPECT_EQ(NFiles(), 2u);
  EXPECT_TRUE(fs::exists(temp_.File("ours/session")));
  EXPECT_TRUE(fs::exists(temp_.File("ours/0123.scratch")));
}

TEST_F(ScratchFileTest, WhatKilledProcessesLeftIsRemovedByTheNext) {
  for (int i = 0; i < 20; ++i) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto file = ScratchFile::Create(*folder_);
      const bool is_written =
          file.ok() && write((*file)->descriptor(), "x", 1) == 1;
      if (write(ends[1], &is_written, 1) != 1) _exit(1);
      pause();
      _exit(1);
    }
    bool is_written = false;
    ASSERT_EQ(read(ends[0], &is_written, 1), 1);
    EXPECT_TRUE(is_written);
    EXPECT_EQ(NFiles(), 1u) << "the one of the process before is removed";
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ends[0]);
    close(ends[1]);
  }
  EXPECT_EQ(NFiles(), 1u);
  const auto file = Create();
  EXPECT_EQ(NFiles(), 1u);
}

TEST_F(ScratchFileTest, ALinkThatLooksLikeALeftOverIsNotFollowed) {
  std::ofstream(temp_.File("precious")) << "x";
  const std::string name = std::string(32, 'a') + ".scratch";
  fs::create_symlink(temp_.File("precious"), temp_.File("ours/" + name));
  const auto file = Create();
  EXPECT_TRUE(fs::exists(temp_.File("precious")));
}

TEST_F(ScratchFileTest, AFolderThatIsGoneIsNamed) {
  fs::remove_all(temp_.File("ours"));
  const auto file = ScratchFile::Create(*folder_);
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find("/ours/"), std::string::npos)
      << file.status().message();
}

TEST(ScratchNameTest, IsOfHexDigits) {
  EXPECT_TRUE(IsScratchName("0123456789abcdef0123456789abcdef.scratch"));
  EXPECT_FALSE(IsScratchName("0123456789ABCDEF0123456789abcdef.scratch"));
  EXPECT_FALSE(IsScratchName("0123456789abcdef0123456789abcdef.session"));
  EXPECT_FALSE(IsScratchName("0123456789abcdef.scratch"));
  EXPECT_FALSE(IsScratchName(""));
}

}  // namespace
}  // namespace lkv
