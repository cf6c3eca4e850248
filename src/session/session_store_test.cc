#include "session/session_store.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "session/store_files.h"
#include "session/testing_sessions.h"
#include "testing/manual_clock.h"
#include "testing/memory_folder.h"

namespace lkv {
namespace {

constexpr int64_t kDay = 24 * 60 * 60;

class SessionStoreTest : public testing::Test {
 protected:
  SessionStoreTest() {
    options_.min_free_bytes = 0;
    folder_.capacity_bytes = 1 << 30;
  }

  SessionStore& Store() {
    if (store_ == nullptr) {
      auto store = SessionStore::Open(folder_, clock_, options_);
      EXPECT_TRUE(store.ok()) << store.status().message();
      store_ = *std::move(store);
    }
    return *store_;
  }
  Result<std::string> TrySave(const SessionSpec& spec, uint32_t version,
                              const std::vector<size_t>& block_bytes) {
    auto save = Store().BeginSave(spec, TestBound(block_bytes));
    if (!save.ok()) return save.status();
    for (uint32_t i = 0; i < block_bytes.size(); ++i) {
      BlockInfo info;
      info.n_bytes = block_bytes[i];
      Status s = save->Append(info, TestBlock(version, i, block_bytes[i]));
      if (!s.ok()) return s;
    }
    return Store().FinishSave(*std::move(save));
  }
  std::string Save(const SessionSpec& spec, uint32_t version = 1,
                   const std::vector<size_t>& block_bytes = kTestBlockBytes) {
    const auto id = TrySave(spec, version, block_bytes);
    EXPECT_TRUE(id.ok()) << id.status().message();
    return id.ok() ? *id : "";
  }
  // One of 100 KB.
  std::string SaveLarge(const std::string& name) {
    return Save(TestSpec(name), 1, {100'000});
  }
  bool Has(const std::string& id) { return folder_.Has(SessionFileName(id)); }
  PrefixMatch Find(const std::vector<int32_t>& tokens,
                   const Fingerprint& fingerprint = TestFingerprint(),
                   const SessionOwner& owner = TestOwner()) {
    return Store().FindPrefix({owner, fingerprint, tokens});
  }
  // Names of all sessions, the one used longest ago first.
  std::string Names() {
    std::string names;
    const auto records = Store().List();
    EXPECT_TRUE(records.ok());
    for (const SessionRecord& record : *records) names += record.name;
    return names;
  }

  MemoryFolder folder_;
  ManualClock clock_;
  StoreOptions options_;
  std::unique_ptr<SessionStore> store_;
};

TEST_F(SessionStoreTest, OpensWhatWasSaved) {
  const std::string id = Save(TestSpec("a", 7), 7);
  EXPECT_EQ(id, SessionId(TestOwner().tag, "a"));
  const Fingerprint fingerprint = TestFingerprint();
  const SessionOwner owner = TestOwner();
  const auto reader =
      Store().OpenSession(id, {.fingerprint = &fingerprint, .owner = &owner});
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ((*reader)->text().tokens, TestTokens(100, 7));
  const Status blocks = CheckTestBlocks(**reader, 7, kTestBlockBytes);
  EXPECT_TRUE(blocks.ok()) << blocks.message();
  EXPECT_TRUE(Store().Verify(id).ok());
  EXPECT_EQ(Store().counters().saved, 1u);
}

TEST_F(SessionStoreTest, ListsWhatIsThere) {
  clock_.unix_seconds = 5000;
  Save(TestSpec("a"));
  const auto records = Store().List();
  ASSERT_EQ(records->size(), 1u);
  const SessionRecord& record = records->at(0);
  EXPECT_EQ(record.name, "a");
  EXPECT_EQ(record.owner_tag, TestOwner().tag);
  EXPECT_EQ(record.fingerprint_hash, TestFingerprint().Hash());
  EXPECT_EQ(record.n_tokens, 100u);
  EXPECT_EQ(record.n_bytes,
            folder_.Contents(SessionFileName(record.id)).size());
  EXPECT_EQ(record.created_unix_s, 5000);
  EXPECT_EQ(record.n_hits, 0u);
  clock_.unix_seconds = 6000;
  ASSERT_TRUE(Store().CountHit(record.id).ok());
  EXPECT_EQ(Store().List()->at(0).n_hits, 1u);
  EXPECT_EQ(Store().List()->at(0).last_use_unix_s, 6000);
}

TEST_F(SessionStoreTest, SavingAgainReplacesTheSessionOfThatName) {
  const std::string id = Save(TestSpec("a", 1), 1);
  EXPECT_EQ(Save(TestSpec("a", 2), 2), id);
  EXPECT_EQ(folder_.List()->size(), 1u);
  const auto reader = Store().OpenSession(id, {});
  EXPECT_EQ((*reader)->text().tokens, TestTokens(100, 2));
  EXPECT_EQ((*reader)->header().generation, 2u);
  EXPECT_EQ(Find(TestTokens(100, 1)).miss, PrefixMiss::kNoCommonPrefix);
}

TEST_F(SessionStoreTest, OwnersHaveNamesOfTheirOwn) {
  SessionSpec other = TestSpec("a");
  other.owner = TestOwner(9);
  EXPECT_NE(Save(TestSpec("a")), Save(other));
}

TEST_F(SessionStoreTest, AnUnfinishedSaveLeavesNothing) {
  {
    const auto save = Store().BeginSave(TestSpec("a"), TestBound({1000}));
    ASSERT_TRUE(save.ok());
  }
  EXPECT_TRUE(folder_.List()->empty());
  EXPECT_EQ(Names(), "");
}

// --- the longest common beginning

TEST_F(SessionStoreTest, FindsTheLongestCommonBeginningToTheToken) {
  Save(TestSpec("short", 1, 128));
  SessionSpec longer = TestSpec("long", 2);
  longer.tokens = TestTokens(500, 2, 300);
  longer.complete_tokens = 500;
  Save(longer, 2);
  // 0..299 as all, then as version 3.
  const PrefixMatch match = Find(TestTokens(400, 3, 300));
  ASSERT_NE(match.session, nullptr) << Text(match.miss);
  EXPECT_EQ(match.id, SessionId(TestOwner().tag, "long"));
  EXPECT_EQ(match.n_tokens, 300u);
  EXPECT_TRUE(CheckTestBlocks(*match.session, 2, kTestBlockBytes).ok());
  EXPECT_EQ(Find(longer.tokens).n_tokens, 500u);
  std::vector<int32_t> more = longer.tokens;
  more.resize(1000, -5);
  EXPECT_EQ(Find(more).n_tokens, 500u);
}

TEST_F(SessionStoreTest, OfSessionsWithTheSameLinksTheLongestIsFound) {
  for (uint32_t shared = 130; shared < 140; ++shared) {
    SessionSpec spec = TestSpec(std::to_string(shared));
    spec.tokens = TestTokens(200, shared, shared);
    spec.complete_tokens = 200;
    Save(spec);
  }
  const PrefixMatch match = Find(TestTokens(300, 1, 300));
  EXPECT_EQ(match.n_tokens, 139u);
  EXPECT_EQ(match.session->text().name, "139");
}

TEST_F(SessionStoreTest, SaysWhyThereIsNone) {
  EXPECT_EQ(Text(Find(TestTokens(100, 1)).miss), "no_session");
  Save(TestSpec("a"));
  EXPECT_EQ(Text(Find(TestTokens(100, 2)).miss), "no_common_prefix");
  EXPECT_EQ(Text(Find(TestTokens(63, 1)).miss), "no_common_prefix");
  EXPECT_EQ(Text(Find({}).miss), "no_common_prefix");
  Fingerprint print = TestFingerprint();
  print.Set("kv_type", "int8");
  const PrefixMatch other = Find(TestTokens(100, 1), print);
  EXPECT_EQ(Text(other.miss), "other_fingerprint");
  EXPECT_EQ(other.detail, "kv_type is f16 instead of int8");
  EXPECT_EQ(other.session, nullptr);
}

// And the same text of the same owner is found: the pair shows that the owner
// alone makes the difference.
TEST_F(SessionStoreTest, TheTextsOfAnotherOwnerAreNotThere) {
  Save(TestSpec("a"));
  const PrefixMatch other =
      Find(TestTokens(100, 1), TestFingerprint(), TestOwner(9));
  EXPECT_EQ(other.miss, PrefixMiss::kNoSession);
  EXPECT_EQ(Find(TestTokens(100, 1)).n_tokens, 100u);
}

TEST_F(SessionStoreTest, EvictedTokensEndWhatIsUsable) {
  SessionSpec spec = TestSpec("a", 1, 300);
  spec.complete_tokens = 150;
  Save(spec);
  EXPECT_EQ(Find(TestTokens(300, 1)).n_tokens, 300u) << "as it was left";
  EXPECT_EQ(Find(TestTokens(299, 1)).n_tokens, 150u);
  EXPECT_EQ(Find(TestTokens(130, 1)).n_tokens, 130u);
  spec.complete_tokens = 10;
  Save(spec);
  const PrefixMatch match = Find(TestTokens(299, 1));
  EXPECT_EQ(Text(match.miss), "evicted_prefix");
  EXPECT_EQ(match.session, nullptr);
  EXPECT_EQ(Find(TestTokens(300, 1)).n_tokens, 300u);
}

TEST_F(SessionStoreTest, ALongerEvictedSessionHidesNoShorterOne) {
  SessionSpec evicted = TestSpec("evicted", 1, 500);
  evicted.complete_tokens = 4;
  Save(evicted);
  Save(TestSpec("complete", 1, 200));
  const PrefixMatch match = Find(TestTokens(450, 1));
  EXPECT_EQ(match.n_tokens, 200u);
  EXPECT_EQ(match.session->text().name, "complete");
}

TEST_F(SessionStoreTest, ADamagedSessionIsAMissAndForgotten) {
  const std::string id = Save(TestSpec("a"));
  folder_.Contents(SessionFileName(id))[kHeaderBytes + 3] ^= 1;
  const PrefixMatch match = Find(TestTokens(100, 1));
  EXPECT_EQ(match.session, nullptr);
  EXPECT_EQ(Text(match.miss), "damaged");
  EXPECT_NE(match.detail.find("checksum"), std::string::npos);
  EXPECT_EQ(Store().counters().damaged, 1u);
  EXPECT_EQ(Find(TestTokens(100, 1)).miss, PrefixMiss::kNoSession);
}

TEST_F(SessionStoreTest, ADamagedSessionHidesNoSoundOne) {
  const std::string id = Save(TestSpec("long", 1, 300));
  Save(TestSpec("short", 1, 200));
  folder_.Contents(SessionFileName(id)).pop_back();
  const PrefixMatch match = Find(TestTokens(300, 1));
  ASSERT_NE(match.session, nullptr);
  EXPECT_EQ(match.n_tokens, 200u);
  EXPECT_EQ(match.miss, PrefixMiss::kNone);
}

TEST_F(SessionStoreTest, AFolderThatCannotBeReadIsAMiss) {
  Save(TestSpec("a"));
  for (uint64_t call = 1; call <= 5; ++call) {
    folder_.failing_call = folder_.n_calls + call;
    const PrefixMatch match = Find(TestTokens(100, 1));
    EXPECT_EQ(match.session, nullptr) << call;
    EXPECT_EQ(Text(match.miss), "unavailable") << call;
  }
  folder_.failing_call = 0;
  EXPECT_EQ(Find(TestTokens(100, 1)).n_tokens, 100u) << "nothing was lost";
}

TEST_F(SessionStoreTest, LooksAtOpenedFilesWhateverTheCatalogueSays) {
  Save(TestSpec("a"));
  // Another file under the same id, as if the catalogue were out of date.
  const std::string id = SessionId(TestOwner().tag, "a");
  SessionSpec other = TestSpec("b", 2);
  const std::string other_id = Save(other, 2);
  folder_.Put(SessionFileName(id), folder_.Contents(SessionFileName(other_id)));
  const PrefixMatch match = Find(TestTokens(100, 1));
  EXPECT_EQ(match.session, nullptr) << "the tokens are others";
}

// --- the quota

TEST_F(SessionStoreTest, RefusesMoreThanTheQuotaBeforeAnythingIsWritten) {
  options_.quota_bytes = 500'000;
  SaveLarge("a");
  const auto saved = TrySave(TestSpec("b"), 1, {600'000});
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(Names(), "a") << "and nobody leaves for it";
  EXPECT_EQ(Store().counters().too_large, 1u);
}

TEST_F(SessionStoreTest, ThoseUsedLongestAgoMakeRoom) {
  options_.quota_bytes = 600'000;
  for (const char* name : {"a", "b", "c", "d"}) SaveLarge(name);
  EXPECT_EQ(Names(), "abcd");
  ASSERT_TRUE(Store().CountHit(SessionId(TestOwner().tag, "a")).ok());
  SaveLarge("e");
  EXPECT_EQ(Names(), "cdae");
  EXPECT_EQ(Store().counters().made_room, 1u);
  EXPECT_LE(*Store().UsedBytes(), options_.quota_bytes);
  EXPECT_FALSE(Has(SessionId(TestOwner().tag, "b")));
}

TEST_F(SessionStoreTest, NeitherPinnedNorOpenSessionsMakeRoom) {
  options_.quota_bytes = 500'000;
  const std::string a = SaveLarge("a"), b = SaveLarge("b");
  SaveLarge("c");
  ASSERT_TRUE(Store().Pin(a, Protection::kProtected).ok());
  EXPECT_TRUE(Store().List()->at(0).is_pinned);
  auto open = Store().OpenSession(b, {});
  SaveLarge("d");
  EXPECT_EQ(Names(), "abd");
  const auto saved = TrySave(TestSpec("e"), 1, {300'000});
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(Names(), "abd") << "nobody leaves in vain";
  EXPECT_EQ(Store().counters().no_room, 1u);
  ASSERT_TRUE(Store().Pin(a, Protection::kNone).ok());
  *open = nullptr;
  EXPECT_TRUE(TrySave(TestSpec("e"), 1, {300'000}).ok());
}

TEST_F(SessionStoreTest, WhatIsReplacedLeavesLast) {
  options_.quota_bytes = 480'000;
  SaveLarge("a");
  SaveLarge("b");
  SaveLarge("c");
  SaveLarge("a");
  EXPECT_EQ(Names(), "ca");
}

TEST_F(SessionStoreTest, KeepsSomeOfTheDiskFree) {
  folder_.capacity_bytes = 1'000'000;
  options_.min_free_bytes = 720'000;
  SaveLarge("a");
  SaveLarge("b");
  EXPECT_EQ(Names(), "b");
  EXPECT_FALSE(TrySave(TestSpec("c"), 1, {300'000}).ok());
}

TEST_F(SessionStoreTest, WhatDeadWritersLeftGoesBeforeSessions) {
  options_.quota_bytes = 500'000;
  SaveLarge("a");
  SaveLarge("b");
  folder_.Put(std::string(32, 'd') + ".draft",
              std::vector<uint8_t>(150'000, 1));
  SaveLarge("c");
  EXPECT_EQ(Names(), "abc");
}

TEST_F(SessionStoreTest, AFullDiskFailsTheSaveAlone) {
  SaveLarge("a");
  folder_.capacity_bytes = 150'000;
  EXPECT_FALSE(TrySave(TestSpec("b"), 1, {100'000}).ok());
  folder_.capacity_bytes = 1 << 30;
  EXPECT_EQ(Names(), "a") << "nobody leaves in vain";
  SaveLarge("b");
  EXPECT_EQ(Names(), "ab");
}

// --- keeping order

TEST_F(SessionStoreTest, RemovesForGood) {
  const std::string id = Save(TestSpec("a"));
  ASSERT_TRUE(Store().Remove(id).ok());
  EXPECT_EQ(Store().Remove(id).code(), StatusCode::kNotFound);
  EXPECT_EQ(Store().OpenSession(id, {}).status().code(), StatusCode::kNotFound);
  folder_.Crash([](size_t) { return false; });
  EXPECT_FALSE(Has(id)) << "also after a crash";
  for (const char* no_id : {"", "..", "../../etc/passwd", "a"}) {
    EXPECT_EQ(Store().Remove(no_id).code(), StatusCode::kNotFound);
    EXPECT_EQ(Store().OpenSession(no_id, {}).status().code(),
              StatusCode::kNotFound);
    EXPECT_EQ(Store().Pin(no_id, Protection::kNone).code(),
              StatusCode::kNotFound);
  }
}

TEST_F(SessionStoreTest, AnotherStoreKnowsAllFromTheFiles) {
  clock_.unix_seconds = 3000;
  Save(TestSpec("late"));
  clock_.unix_seconds = 1000;
  const std::string early = Save(TestSpec("early"));
  ASSERT_TRUE(Store().Pin(early, Protection::kProtected).ok());
  // The catalogue of a folder in memory is gone with its store.
  store_ = nullptr;
  EXPECT_EQ(Names(), "earlylate") << "by the time of their making";
  EXPECT_TRUE(Store().List()->at(0).is_pinned);
  EXPECT_EQ(Find(TestTokens(100, 1)).n_tokens, 100u);
}

TEST_F(SessionStoreTest, APinStaysWhenTheSessionIsSavedAgain) {
  const std::string id = Save(TestSpec("a", 1));
  ASSERT_TRUE(Store().Pin(id, Protection::kProtected).ok());
  Save(TestSpec("a", 2), 2);
  EXPECT_TRUE(Store().List()->at(0).is_pinned);
  EXPECT_TRUE(folder_.List()->at(0).is_protected);
}

TEST_F(SessionStoreTest, WhatWasNotUsedForKeepDaysLeaves) {
  options_.keep_days = 10;
  const std::string a = Save(TestSpec("a")), b = Save(TestSpec("b")),
                    c = Save(TestSpec("c")), d = Save(TestSpec("d"));
  ASSERT_TRUE(Store().Pin(a, Protection::kProtected).ok());
  clock_.unix_seconds += 9 * kDay;
  ASSERT_TRUE(Store().CountHit(b).ok());
  const auto open = Store().OpenSession(c, {});
  clock_.unix_seconds += kDay + 1;
  const auto report = Store().Collect();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->expired, std::vector<std::string>{d});
  EXPECT_GT(report->freed_bytes, 0u);
  EXPECT_EQ(Names(), "acb");
}

TEST_F(SessionStoreTest, AClockThatGoesBackwardsRemovesNothing) {
  options_.keep_days = 1;
  const std::string id = Save(TestSpec("a"));
  for (const int64_t now : {clock_.unix_seconds - 1000 * kDay, int64_t{0},
                            int64_t{-5}, INT64_MIN}) {
    clock_.unix_seconds = now;
    ASSERT_TRUE(Store().Collect().ok());
    EXPECT_EQ(Names(), "a") << now;
  }
  ASSERT_TRUE(Store().CountHit(id).ok());
  clock_.unix_seconds = INT64_MAX;
  ASSERT_TRUE(Store().Collect().ok());
  EXPECT_EQ(Names(), "");
}

TEST_F(SessionStoreTest, CollectRemovesWhatCanNeverBeUsedAndNamesTheRest) {
  const std::string sound = Save(TestSpec("sound"));
  const std::vector<uint8_t> bytes = folder_.Contents(SessionFileName(sound));
  const std::string unfinished(32, 'a'), newer(32, 'b'), draft(32, 'c');
  folder_.Put(SessionFileName(unfinished), {bytes.begin(), bytes.end() - 4096});
  std::vector<uint8_t> of_version_2 = bytes;
  of_version_2[8] = 2;
  RepairChecksums(of_version_2);
  folder_.Put(SessionFileName(newer), of_version_2);
  folder_.Put(draft + ".draft", bytes);
  folder_.Put("notes.txt", bytes);
  const auto report = Store().Collect();
  ASSERT_TRUE(report.ok());
  // Opening the store collected before.
  store_ = nullptr;
  EXPECT_FALSE(Has(unfinished));
  EXPECT_FALSE(folder_.Has(draft + ".draft"));
  EXPECT_TRUE(Has(newer));
  EXPECT_TRUE(folder_.Has("notes.txt"));
  ASSERT_EQ(report->damaged.size(), 1u);
  EXPECT_NE(report->damaged[0].find("never finished"), std::string::npos);
  EXPECT_EQ(report->drafts, std::vector<std::string>{draft + ".draft"});
  ASSERT_EQ(report->left.size(), 2u);
  EXPECT_NE(report->left[0].find("format version 2.0"), std::string::npos);
  EXPECT_EQ(report->left[1], "notes.txt: is no file of sessions");
  EXPECT_EQ(report->freed_bytes, bytes.size() * 2 - 4096);
  EXPECT_EQ(Names(), "sound");
}

TEST_F(SessionStoreTest, CollectLeavesDraftsOfLivingWriters) {
  auto save = Store().BeginSave(TestSpec("a"), TestBound({1000}));
  ASSERT_TRUE(save.ok());
  EXPECT_TRUE(Store().Collect()->drafts.empty());
  BlockInfo info;
  info.n_bytes = 1000;
  ASSERT_TRUE(save->Append(info, TestBlock(1, 0, 1000)).ok());
  EXPECT_TRUE(Store().FinishSave(*std::move(save)).ok());
}

TEST_F(SessionStoreTest, VerifyNamesTheDamagedBlock) {
  const std::string id = Save(TestSpec("a"));
  std::vector<uint8_t>& bytes = folder_.Contents(SessionFileName(id));
  const auto reader = Store().OpenSession(id, {});
  bytes[(*reader)->blocks()[1].offset] ^= 0x10;
  const Status s = Store().Verify(id);
  EXPECT_EQ(s.code(), StatusCode::kCorrupt);
  EXPECT_NE(s.message().find(id + ", block 1"), std::string::npos);
}

TEST_F(SessionStoreTest, SealedSessionsNeedTheirKeyToBeFound) {
  options_.master_key = TestKey();
  const std::string id = Save(TestSpec("a"));
  EXPECT_EQ(Find(TestTokens(100, 1)).n_tokens, 100u);
  EXPECT_TRUE(Store().Verify(id).ok());

  store_ = nullptr;
  options_.master_key.reset();
  EXPECT_EQ(Names(), "") << "the name is sealed, too";
  EXPECT_EQ(Store().List()->at(0).n_tokens, 100u);
  EXPECT_TRUE(Store().Verify(id).ok()) << "damage is found without the key";
  EXPECT_EQ(Find(TestTokens(100, 1)).miss, PrefixMiss::kNoCommonPrefix);

  store_ = nullptr;
  options_.master_key = TestKey(9);
  EXPECT_EQ(Store().List()->size(), 1u) << "it can be listed and removed";
  EXPECT_TRUE(Store().Remove(id).ok());
}

}  // namespace
}  // namespace lkv
