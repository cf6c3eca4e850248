#include "session/session_transfer.h"

#include <gtest/gtest.h>

#include "session/testing_sessions.h"
#include "testing/manual_clock.h"
#include "testing/memory_folder.h"

namespace lkv {
namespace {

constexpr char kPath[] = "copy";

class SessionTransferTest : public testing::Test {
 protected:
  std::unique_ptr<SessionStore> Open(MemoryFolder& folder,
                                     const SecretKey* key) {
    StoreOptions options;
    options.min_free_bytes = 0;
    if (key != nullptr) options.master_key = *key;
    auto store = SessionStore::Open(folder, clock_, options);
    EXPECT_TRUE(store.ok());
    return *std::move(store);
  }
  // A store with one session.
  std::unique_ptr<SessionStore> OpenWithOne(const SecretKey* key) {
    auto store = Open(here_, key);
    auto save = store->BeginSave(TestSpec("a name"), TestBound({9000, 10}));
    BlockInfo info;
    info.n_bytes = 9000;
    EXPECT_TRUE(save->Append(info, TestBlock(1, 0, 9000)).ok());
    info.n_bytes = 10;
    EXPECT_TRUE(save->Append(info, TestBlock(1, 1, 10)).ok());
    EXPECT_EQ(*store->FinishSave(*std::move(save)), id_);
    return store;
  }
  Result<std::string> Import(SessionStore& store, const SecretKey* key) {
    return ImportSession(store, files_, kPath, TestOwner(2), key);
  }

  const std::string id_ = SessionId(TestOwner().tag, "a name");
  const SecretKey key_ = TestKey(), other_key_ = TestKey(2);
  ManualClock clock_;
  MemoryFolder here_, there_;
  MemoryFileSystem files_;
};

TEST_F(SessionTransferTest, ASessionComesOverAndBelongsToWhoTookIt) {
  const auto here = OpenWithOne(nullptr);
  ASSERT_TRUE(ExportSession(*here, id_, files_, kPath).ok());
  const auto there = Open(there_, nullptr);
  const auto id = Import(*there, nullptr);
  ASSERT_TRUE(id.ok()) << id.status().message();
  EXPECT_EQ(*id, SessionId(TestOwner(2).tag, "a name"));
  const PrefixMatch match =
      there->FindPrefix({TestOwner(2), TestFingerprint(), TestTokens(100, 1)});
  ASSERT_NE(match.session, nullptr) << Text(match.miss);
  EXPECT_EQ(match.n_tokens, 100u);
  const Status s = CheckTestBlocks(*match.session, 1, {9000, 10});
  EXPECT_TRUE(s.ok()) << s.message();
}

TEST_F(SessionTransferTest, ASealedSessionIsSealedAgainWithTheOtherKey) {
  const auto here = OpenWithOne(&key_);
  ASSERT_TRUE(ExportSession(*here, id_, files_, kPath).ok());
  const auto there = Open(there_, &other_key_);
  EXPECT_FALSE(Import(*there, nullptr).ok());
  EXPECT_FALSE(Import(*there, &other_key_).ok());
  const auto id = Import(*there, &key_);
  ASSERT_TRUE(id.ok()) << id.status().message();
  const auto reader = there->OpenSession(*id, {.master_key = &other_key_});
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_TRUE(CheckTestBlocks(**reader, 1, {9000, 10}).ok());
}

TEST_F(SessionTransferTest, ADamagedSessionIsNotExported) {
  const auto here = OpenWithOne(nullptr);
  const auto reader = here->OpenSession(id_, {});
  here_.Contents(id_ + ".session")[(*reader)->blocks()[1].offset] ^= 1;
  EXPECT_EQ(ExportSession(*here, id_, files_, kPath).code(),
            StatusCode::kCorrupt);
  EXPECT_TRUE(files_.files.empty());
}

TEST_F(SessionTransferTest, ADamagedFileIsNotImported) {
  const auto here = OpenWithOne(nullptr);
  ASSERT_TRUE(ExportSession(*here, id_, files_, kPath).ok());
  const auto there = Open(there_, nullptr);
  const std::vector<uint8_t> sound = files_.files[kPath];
  for (const size_t at : {size_t{0}, kHeaderBytes, size_t{2 * 4096},
                          size_t{5 * 4096}, sound.size() - 64}) {
    files_.files[kPath] = sound;
    files_.files[kPath][at] ^= 1;
    EXPECT_EQ(Import(*there, nullptr).status().code(), StatusCode::kCorrupt)
        << at;
  }
  EXPECT_TRUE(there_.List()->empty());
  files_.files[kPath] = sound;
  EXPECT_TRUE(Import(*there, nullptr).ok());
}

TEST_F(SessionTransferTest, WhatIsMissingIsNamed) {
  const auto here = OpenWithOne(nullptr);
  EXPECT_EQ(ExportSession(*here, std::string(32, 'a'), files_, kPath).code(),
            StatusCode::kNotFound);
  EXPECT_EQ(Import(*here, nullptr).status().code(), StatusCode::kNotFound);
}

TEST_F(SessionTransferTest, AnExportThatCannotBeWrittenFails) {
  const auto here = OpenWithOne(nullptr);
  files_.free_bytes = 5000;
  EXPECT_EQ(ExportSession(*here, id_, files_, kPath).code(), StatusCode::kIo);
  files_.free_bytes = UINT64_MAX;
  files_.refuses_commit = true;
  EXPECT_EQ(ExportSession(*here, id_, files_, kPath).code(), StatusCode::kIo);
}

}  // namespace
}  // namespace lkv
