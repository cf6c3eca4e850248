#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "io/file_system.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

std::vector<uint8_t> Bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string ContentsOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

size_t FilesIn(const std::string& folder) {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(folder), {}));
}

class LocalFileSystemTest : public testing::Test {
 protected:
  std::unique_ptr<NewFile> Create(const std::string& path) {
    auto file = LocalFileSystem().Create(path);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return *std::move(file);
  }

  TempFolder folder_;
  const std::string path_ = folder_.File("a file");
};

TEST_F(LocalFileSystemTest, ShowsANewFileAtCommitAndNotBefore) {
  auto file = Create(path_);
  ASSERT_TRUE(file->Append(Bytes("whole ")).ok());
  ASSERT_TRUE(file->Append(Bytes("text")).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(file->n_bytes(), 10u);
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(ContentsOf(path_), "whole text");
  EXPECT_EQ(FilesIn(folder_.File("")), 1u);
}

TEST_F(LocalFileSystemTest, LeavesTheOldFileWhenTheNewOneIsAbandoned) {
  std::ofstream(path_) << "old";
  {
    auto file = Create(path_);
    ASSERT_TRUE(file->Append(Bytes("new, but not all of it")).ok());
  }
  EXPECT_EQ(ContentsOf(path_), "old");
  EXPECT_EQ(FilesIn(folder_.File("")), 1u) << "nothing is left behind";
}

TEST_F(LocalFileSystemTest, ReplacesAnOldFile) {
  std::ofstream(path_) << "old and longer";
  auto file = Create(path_);
  ASSERT_TRUE(file->Append(Bytes("new")).ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(ContentsOf(path_), "new");
}

TEST_F(LocalFileSystemTest, ReadsAnyPart) {
  std::ofstream(path_) << "0123456789";
  auto file = LocalFileSystem().Open(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->n_bytes(), 10u);
  std::vector<uint8_t> part(4);
  ASSERT_TRUE((*file)->ReadAt(3, part).ok());
  EXPECT_EQ(part, Bytes("3456"));
  const Status past = (*file)->ReadAt(8, part);
  EXPECT_EQ(past.code(), StatusCode::kCorrupt);
  EXPECT_NE(past.message().find(path_), std::string::npos);
}

TEST_F(LocalFileSystemTest, NamesAFileThatIsNotThere) {
  const auto file = LocalFileSystem().Open(path_);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kNotFound);
  EXPECT_NE(file.status().message().find(path_), std::string::npos);
}

TEST_F(LocalFileSystemTest, RefusesWhatIsNoFile) {
  EXPECT_EQ(LocalFileSystem().Open(folder_.File("")).status().code(),
            StatusCode::kCorrupt);
  EXPECT_EQ(LocalFileSystem().Create("/dev/null").status().code(),
            StatusCode::kCorrupt)
      << "a rename would replace the device";
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(LocalFileSystem().Open(path_).status().code(), StatusCode::kCorrupt)
      << "and does not wait for a writer";
}

TEST_F(LocalFileSystemTest, NamesAFolderThatIsNotThere) {
  const auto file = LocalFileSystem().Create(folder_.File("no/such/file"));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace lkv
