// What every folder promises, shown of the local one and of the one in memory.

#include "io/folder.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "io/io_buffer.h"
#include "testing/memory_folder.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

std::vector<uint8_t> Bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

class FolderTest : public testing::TestWithParam<bool> {
 protected:
  FolderTest() {
    if (GetParam()) {
      auto folder = OpenLocalFolder(temp_.File("ours"));
      EXPECT_TRUE(folder.ok()) << folder.status().message();
      folder_ = *std::move(folder);
    } else {
      folder_ = std::make_unique<MemoryFolder>();
    }
  }

  std::unique_ptr<GrowingFile> Create(const std::string& name,
                                      std::string_view text) {
    auto file = folder_->Create(name);
    EXPECT_TRUE(file.ok()) << file.status().message();
    EXPECT_TRUE((*file)->Append(Bytes(text)).ok());
    return *std::move(file);
  }
  // A whole file, written and closed.
  void Write(const std::string& name, std::string_view text) {
    EXPECT_TRUE(Create(name, text)->Sync().ok());
  }
  std::vector<uint8_t> ContentsOf(const std::string& name) {
    auto file = folder_->Open(name);
    EXPECT_TRUE(file.ok()) << file.status().message();
    if (!file.ok()) return {};
    std::vector<uint8_t> bytes((*file)->n_bytes());
    EXPECT_TRUE((*file)->ReadAt(0, bytes).ok());
    return bytes;
  }
  FolderEntry Entry(const std::string& name) {
    const auto entries = folder_->List();
    for (const FolderEntry& entry : *entries) {
      if (entry.name == name) return entry;
    }
    ADD_FAILURE() << name << " is not listed";
    return {};
  }

  TempFolder temp_;
  std::unique_ptr<Folder> folder_;
};

TEST_P(FolderTest, ReadsWhatWasAppended) {
  auto file = Create("a", "one ");
  ASSERT_TRUE(file->Append(Bytes("two")).ok());
  EXPECT_EQ(file->n_bytes(), 7u);
  ASSERT_TRUE(file->Sync().ok());
  file.reset();
  EXPECT_EQ(ContentsOf("a"), Bytes("one two"));
}

TEST_P(FolderTest, GathersSmallPiecesAndPassesOnLargeOnes) {
  constexpr size_t kLarge = (size_t{3} << 20) + 17;
  std::vector<uint8_t> expected;
  auto file = Create("a", "");
  for (size_t n : {size_t{5}, kLarge, size_t{1}, kLarge, size_t{4096}}) {
    std::vector<uint8_t> piece(n);
    for (size_t i = 0; i < n; ++i) {
      piece[i] = static_cast<uint8_t>((expected.size() + i) * 31 >> 3);
    }
    ASSERT_TRUE(file->Append(piece).ok());
    expected.insert(expected.end(), piece.begin(), piece.end());
  }
  ASSERT_TRUE(file->Sync().ok());
  file.reset();
  EXPECT_TRUE(ContentsOf("a") == expected);
}

TEST_P(FolderTest, ListsFilesByNameWithWhatTheyTake) {
  Write("b", "text");
  Write("a", "");
  const auto entries = folder_->List();
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[1].n_bytes, 4u);
  EXPECT_GE((*entries)[1].used_bytes, 512u);
}

TEST_P(FolderTest, CreatesNoFileTwice) {
  Write("a", "first");
  EXPECT_EQ(folder_->Create("a").status().code(), StatusCode::kIo);
  EXPECT_EQ(ContentsOf("a"), Bytes("first"));
}

TEST_P(FolderTest, RenamesIntoThePlaceOfAnother) {
  Write("a", "old");
  Write("b", "new");
  ASSERT_TRUE(folder_->Rename("b", "a").ok());
  EXPECT_EQ(ContentsOf("a"), Bytes("new"));
  EXPECT_EQ(folder_->Open("b").status().code(), StatusCode::kNotFound);
}

TEST_P(FolderTest, RemovesAFileThatIsOpenWithoutHarmToItsReader) {
  Write("a", "text");
  const auto file = folder_->Open("a");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(folder_->Remove("a").ok());
  EXPECT_EQ(folder_->Remove("a").code(), StatusCode::kNotFound);
  std::vector<uint8_t> bytes(4);
  ASSERT_TRUE((*file)->ReadAt(0, bytes).ok());
  EXPECT_EQ(bytes, Bytes("text"));
}

TEST_P(FolderTest, KnowsWhichFilesAreOpen) {
  auto writer = Create("a", "text");
  EXPECT_TRUE(*folder_->IsInUse("a"));
  EXPECT_FALSE(folder_->Open("a").ok()) << "it is still written";
  ASSERT_TRUE(writer->Sync().ok());
  writer.reset();
  EXPECT_FALSE(*folder_->IsInUse("a"));
  {
    const auto one = folder_->Open("a");
    const auto other = folder_->Open("a");
    EXPECT_TRUE(one.ok() && other.ok());
    EXPECT_TRUE(*folder_->IsInUse("a"));
  }
  EXPECT_FALSE(*folder_->IsInUse("a"));
}

TEST_P(FolderTest, ReservedSpaceCountsUntilItIsTrimmed) {
  auto file = Create("a", "text");
  ASSERT_TRUE(file->Reserve(1 << 20).ok());
  EXPECT_GE(Entry("a").used_bytes, uint64_t{1} << 20);
  ASSERT_TRUE(file->Trim().ok());
  EXPECT_LE(Entry("a").used_bytes, 64u << 10);
  EXPECT_EQ(Entry("a").n_bytes, 4u);
}

TEST_P(FolderTest, ProtectionIsAMarkThatStaysThroughRenaming) {
  Write("a", "text");
  EXPECT_FALSE(Entry("a").is_protected);
  ASSERT_TRUE(folder_->Protect("a", Protection::kProtected).ok());
  ASSERT_TRUE(folder_->Rename("a", "b").ok());
  EXPECT_TRUE(Entry("b").is_protected);
  EXPECT_EQ(ContentsOf("b"), Bytes("text"));
  ASSERT_TRUE(folder_->Protect("b", Protection::kNone).ok());
  EXPECT_FALSE(Entry("b").is_protected);
}

TEST_P(FolderTest, RefusesNamesThatLeadElsewhere) {
  for (const std::string name : {"", ".", "..", "a/b", "../a", "/etc/passwd"}) {
    EXPECT_EQ(folder_->Open(name).status().code(), StatusCode::kInvalidArgument)
        << name;
    EXPECT_EQ(folder_->Create(name).status().code(),
              StatusCode::kInvalidArgument)
        << name;
  }
  const std::string cut("a\0b", 3);
  EXPECT_EQ(folder_->Open(cut).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(FolderTest, ReadsNothingBehindTheEnd) {
  Write("a", "text");
  const auto file = folder_->Open("a");
  ASSERT_TRUE(file.ok());
  std::vector<uint8_t> bytes(3);
  EXPECT_EQ((*file)->ReadAt(2, bytes).code(), StatusCode::kCorrupt);
}

TEST_P(FolderTest, ReadsWholeBlocksAndRests) {
  constexpr size_t kBytes = 5 * kIoBlockBytes + 100;
  std::string text(kBytes, ' ');
  for (size_t i = 0; i < kBytes; ++i) text[i] = static_cast<char>(i * 7 >> 2);
  Write("a", text);
  const auto file = folder_->Open("a");
  ASSERT_TRUE(file.ok());
  IoBuffer buffer(2 * kIoBlockBytes);
  const std::vector<uint8_t> expected = Bytes(text);
  // In the middle; over the last whole block; not in whole blocks at all.
  for (auto [offset, n] : {std::pair<size_t, size_t>{4096, 8192},
                           {16384, 4196},
                           {12288, 8192},
                           {1, 5000}}) {
    ASSERT_TRUE((*file)->ReadAt(offset, buffer.span().first(n)).ok());
    EXPECT_TRUE(std::equal(buffer.data(), buffer.data() + n,
                           expected.begin() + static_cast<ptrdiff_t>(offset)))
        << offset;
  }
}

TEST_P(FolderTest, KnowsHowMuchIsFree) {
  const auto free_bytes = folder_->FreeBytes();
  ASSERT_TRUE(free_bytes.ok());
  EXPECT_GT(*free_bytes, 0u);
}

TEST_P(FolderTest, LetsTheLockGoWithItsObject) {
  { EXPECT_TRUE(folder_->Lock().ok()); }
  EXPECT_TRUE(folder_->Lock().ok());
}

INSTANTIATE_TEST_SUITE_P(Local, FolderTest, testing::Values(true));
INSTANTIATE_TEST_SUITE_P(InMemory, FolderTest, testing::Values(false));

}  // namespace
}  // namespace lkv
