#include "session/session_catalogue.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "session/testing_sessions.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

class SessionCatalogueTest : public testing::Test {
 protected:
  static SessionCatalogue OpenAt(const std::string& path) {
    auto catalogue = SessionCatalogue::Open(path);
    EXPECT_TRUE(catalogue.ok()) << catalogue.status().message();
    return *std::move(catalogue);
  }
  static std::vector<Digest> ChainOf(const std::vector<int32_t>& tokens) {
    return TokenChain(TestOwner().chain_seed, tokens);
  }
  void Put(const std::string& id, const std::vector<int32_t>& tokens = {}) {
    const Status s =
        catalogue_.Put({.id = id,
                        .name = "name of " + id,
                        .owner_tag = TestOwner().tag,
                        .n_tokens = static_cast<uint32_t>(tokens.size())},
                       ChainOf(tokens));
    EXPECT_TRUE(s.ok()) << s.message();
  }
  std::string Ids() {
    std::string ids;
    const auto records = catalogue_.List();
    for (const SessionRecord& record : *records) ids += record.id;
    return ids;
  }

  TempFolder folder_;
  const std::string path_ = folder_.File("catalogue.db");
  SessionCatalogue catalogue_ = OpenAt(path_);
};

TEST_F(SessionCatalogueTest, KnowsWhatWasPut) {
  const SessionRecord put = {.id = "a",
                             .file_id = {1, 2},
                             .name = std::string("any\0\xff", 5),
                             .owner_tag = {3},
                             .fingerprint_hash = {4},
                             .n_tokens = 5,
                             .complete_tokens = 6,
                             .generation = UINT64_MAX,
                             .n_bytes = uint64_t{1} << 40,
                             .created_unix_s = -8,
                             .last_use_unix_s = 9,
                             .n_hits = 10,
                             .is_pinned = true};
  ASSERT_TRUE(catalogue_.Put(put, {}).ok());
  SessionCatalogue other = OpenAt(path_);
  const std::optional<SessionRecord> found = *other.Find("a");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->file_id, put.file_id);
  EXPECT_EQ(found->name, put.name);
  EXPECT_EQ(found->owner_tag, put.owner_tag);
  EXPECT_EQ(found->fingerprint_hash, put.fingerprint_hash);
  EXPECT_EQ(found->n_tokens, 5u);
  EXPECT_EQ(found->complete_tokens, 6u);
  EXPECT_EQ(found->generation, UINT64_MAX);
  EXPECT_EQ(found->n_bytes, uint64_t{1} << 40);
  EXPECT_EQ(found->created_unix_s, -8);
  EXPECT_EQ(found->last_use_unix_s, 9);
  EXPECT_EQ(found->n_hits, 10u);
  EXPECT_TRUE(found->is_pinned);
  EXPECT_FALSE(*other.Find("b"));
}

TEST_F(SessionCatalogueTest, ListsByLastUseWhateverTheClockSays) {
  Put("a");
  Put("b");
  Put("c");
  ASSERT_TRUE(catalogue_.CountHit("a", 50).ok());
  ASSERT_TRUE(catalogue_.CountHit("c", 40).ok());
  ASSERT_TRUE(catalogue_.CountHit("b", 30).ok());
  EXPECT_EQ(Ids(), "acb");
  Put("a");
  EXPECT_EQ(Ids(), "cba");
  EXPECT_EQ(catalogue_.Find("a").value()->n_hits, 1u)
      << "saving again forgets no hits";
  EXPECT_EQ(catalogue_.Find("b").value()->last_use_unix_s, 30);
}

TEST_F(SessionCatalogueTest, FindsHowFarSessionsBeginAlike) {
  Put("a", TestTokens(64 * 5, 1));
  Put("b", TestTokens(64 * 5, 2, 64 * 3));
  Put("c", TestTokens(64 * 2, 2, 64 * 3));
  Put("d", TestTokens(64 * 5, 3));
  const std::vector<Digest> chain = ChainOf(TestTokens(64 * 9, 2, 64 * 3));
  const auto found = *catalogue_.FindPrefixes(chain);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].record.id, "c");
  EXPECT_EQ(found[0].n_links, 2u);
  EXPECT_EQ(found[1].record.id, "b");
  EXPECT_EQ(found[1].n_links, 5u);
  const auto other =
      *catalogue_.FindPrefixes(ChainOf(TestTokens(64 * 4, 9, 64 * 3)));
  ASSERT_EQ(other.size(), 2u);
  EXPECT_EQ(other[1].n_links, 3u);
  EXPECT_TRUE(catalogue_.FindPrefixes({})->empty());
}

TEST_F(SessionCatalogueTest, ForgetsTheChainsOfWhatIsRemovedOrReplaced) {
  const std::vector<int32_t> tokens = TestTokens(128, 1);
  Put("a", tokens);
  Put("b", tokens);
  Put("a", TestTokens(128, 2));
  ASSERT_EQ(catalogue_.FindPrefixes(ChainOf(tokens))->size(), 1u);
  ASSERT_TRUE(catalogue_.Remove("b").ok());
  EXPECT_TRUE(catalogue_.FindPrefixes(ChainOf(tokens))->empty());
  EXPECT_EQ(Ids(), "a");
}

TEST_F(SessionCatalogueTest, KnowsItsOwners) {
  Put("a");
  EXPECT_TRUE(*catalogue_.HasOwner(TestOwner().tag));
  EXPECT_FALSE(*catalogue_.HasOwner(TestOwner(9).tag));
}

TEST_F(SessionCatalogueTest, RefusesWhatIsNotOne) {
  catalogue_ = OpenAt("");
  std::ofstream(path_, std::ios::trunc) << std::string(10000, 'x');
  EXPECT_EQ(SessionCatalogue::Open(path_).status().code(),
            StatusCode::kCorrupt);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(folder_.File("elsewhere"), path_);
  EXPECT_FALSE(SessionCatalogue::Open(path_).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_.File("elsewhere")));
}

TEST_F(SessionCatalogueTest, RefusesADamagedOne) {
  for (int i = 0; i < 50; ++i) Put(std::to_string(i), TestTokens(640, 1));
  catalogue_ = OpenAt("");
  const auto n_bytes = std::filesystem::file_size(path_);
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(n_bytes / 2));
  file << std::string(4096, '\xee');
  file.close();
  EXPECT_EQ(SessionCatalogue::Open(path_).status().code(),
            StatusCode::kCorrupt);
}

TEST_F(SessionCatalogueTest, NoticesThatAnotherHasItsPlace) {
  EXPECT_FALSE(catalogue_.IsReplaced());
  std::filesystem::remove(path_);
  EXPECT_TRUE(catalogue_.IsReplaced());
  const SessionCatalogue other = OpenAt(path_);
  EXPECT_TRUE(catalogue_.IsReplaced());
  EXPECT_FALSE(other.IsReplaced());
}

}  // namespace
}  // namespace lkv
