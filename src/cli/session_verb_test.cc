// `lkv session`, on folders that were filled without a model.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/sessions.h"
#include "session/testing_sessions.h"
#include "testing/child_process.h"
#include "testing/test_paths.h"

namespace lkv::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class SessionVerbTest : public testing::Test {
 protected:
  void SetUp() override { options_.sessions_path = folder_.File("sessions"); }

  void Keep(const std::string& name, uint32_t version) {
    auto sessions = Sessions::Open(options_);
    ASSERT_TRUE(sessions.ok()) << sessions.status().message();
    SessionSpec spec = TestSpec(name, version, 100);
    spec.owner = (*sessions)->owner();
    auto save = (*sessions)->store().BeginSave(spec, {5000, 1});
    ASSERT_TRUE(save.ok()) << save.status().message();
    BlockInfo info;
    info.kind = 3;
    info.n_bytes = 5000;
    ASSERT_TRUE(save->Append(info, TestBlock(version, 0, 5000)).ok());
    ASSERT_TRUE((*sessions)->store().FinishSave(*std::move(save)).ok());
  }
  ChildResult Run(std::vector<std::string> words) {
    words.insert(words.begin(), "session");
    ChildOptions options;
    options.environment = {{"LKV_SESSIONS_PATH", options_.sessions_path}};
    return RunLkv(words, options);
  }
  json RunJson(std::vector<std::string> words) {
    words.push_back("--json");
    const ChildResult result = Run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out, nullptr, false);
  }
  std::string FileOf(const std::string& name) {
    auto sessions = Sessions::Open(options_);
    return options_.sessions_path + "/" +
           SessionId((*sessions)->owner().tag, name) + ".session";
  }

  TempFolder folder_;
  CacheOptions options_;
};

TEST_F(SessionVerbTest, ListsTheOneUsedLastFirst) {
  EXPECT_EQ(RunJson({"list"})["sessions"].size(), 0u);
  Keep("one", 1);
  Keep("two\n\x1b[31m", 2);
  const json document = RunJson({"list"});
  ASSERT_EQ(document["sessions"].size(), 2u);
  EXPECT_EQ(document["sessions"][0]["name"], "two\\x0a\\x1b[31m");
  EXPECT_EQ(document["sessions"][1]["name"], "one");
  EXPECT_EQ(document["sessions"][1]["tokens"], 100);
  EXPECT_GT(document["used_bytes"], 10000);
  const ChildResult text = Run({"list"});
  EXPECT_NE(text.out.find("2 sessions in "), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);
}

TEST_F(SessionVerbTest, ShowsOneByNameOrId) {
  Keep("one", 1);
  const json by_name = RunJson({"show", "one"});
  EXPECT_EQ(by_name["fingerprint"]["kv_type"], "f16");
  EXPECT_TRUE(by_name["messages"].is_null());
  EXPECT_EQ(RunJson({"show", by_name["id"]}), by_name);
  const ChildResult missing = Run({"show", "two"});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_NE(missing.err.find("session 'two': is not in "), std::string::npos)
      << missing.err;
}

TEST_F(SessionVerbTest, VerifyFindsEveryDamage) {
  Keep("one", 1);
  Keep("two", 2);
  EXPECT_EQ(Run({"verify", "--all"}).exit_code, 0);
  {
    std::fstream file(FileOf("two"),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(12 << 10);
    file.put('x');
  }
  const ChildResult result = Run({"verify", "one", "two", "--json"});
  EXPECT_EQ(result.exit_code, 1);
  const json document = json::parse(result.out);
  EXPECT_EQ(document["sessions"][0]["sound"], true);
  EXPECT_EQ(document["sessions"][1]["sound"], false);
  EXPECT_NE(document["sessions"][1]["fault"].get<std::string>().find("block"),
            std::string::npos);
}

TEST_F(SessionVerbTest, WhatIsDamagedStaysUntilGcAndCanBeDeletedByName) {
  for (const bool pinned : {false, true}) {
    Keep("one", 1);
    EXPECT_TRUE(!pinned || Run({"pin", "one"}).exit_code == 0);
    chmod(FileOf("one").c_str(), 0600);
    fs::resize_file(FileOf("one"), fs::file_size(FileOf("one")) - 1);
    if (pinned) chmod(FileOf("one").c_str(), 0400);
    const ChildResult list = Run({"list"});
    EXPECT_NE(list.err.find("session "), std::string::npos) << list.err;
    EXPECT_TRUE(fs::exists(FileOf("one")));
    EXPECT_EQ(Run({"verify", "--all"}).exit_code, 1);
    EXPECT_EQ(Run({"gc"}).exit_code, 0);
    EXPECT_EQ(fs::exists(FileOf("one")), pinned);
  }
  EXPECT_EQ(Run({"delete", "one"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(FileOf("one")));
}

TEST_F(SessionVerbTest, ANameThatIsAnIdOfAnotherMeansTheNamedOne) {
  Keep("one", 1);
  const std::string id = RunJson({"show", "one"})["id"];
  Keep(id, 2);
  EXPECT_EQ(RunJson({"show", id})["name"], id);
}

TEST_F(SessionVerbTest, ExportDeleteImport) {
  Keep("one", 1);
  const std::string file = folder_.File("one.session");
  EXPECT_EQ(Run({"export", "one", file}).exit_code, 0);
  EXPECT_EQ(Run({"delete"}).exit_code, 2);
  EXPECT_EQ(Run({"delete", "one", "--all"}).exit_code, 2);
  EXPECT_EQ(Run({"delete", "one"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(FileOf("one")));
  EXPECT_EQ(Run({"delete", "one"}).exit_code, 3);
  EXPECT_EQ(RunJson({"import", file})["name"], "one");
  EXPECT_EQ(RunJson({"list"})["sessions"].size(), 1u);
  struct stat info;
  ASSERT_EQ(stat(FileOf("one").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  std::ofstream(folder_.File("junk")) << "no session";
  EXPECT_EQ(Run({"import", folder_.File("junk")}).exit_code, 3);
  EXPECT_EQ(Run({"import", folder_.File("none")}).exit_code, 3);
}

TEST_F(SessionVerbTest, PinnedOnesAreMarked) {
  Keep("one", 1);
  EXPECT_EQ(Run({"pin", "one"}).exit_code, 0);
  EXPECT_EQ(RunJson({"show", "one"})["pinned"], true);
  EXPECT_EQ(Run({"unpin", "one"}).exit_code, 0);
  EXPECT_EQ(RunJson({"show", "one"})["pinned"], false);
}

TEST_F(SessionVerbTest, GcTakesWhatNobodyCanUse) {
  Keep("one", 1);
  Keep("two", 2);
  std::ofstream(options_.sessions_path + "/" + std::string(32, 'a') + ".draft")
      << "left over";
  std::ofstream(options_.sessions_path + "/mine.txt") << "somebody's";
  fs::resize_file(FileOf("two"), 5000);
  std::ofstream(options_.sessions_path + "/catalogue.db") << "no database";
  const json report = RunJson({"gc"});
  EXPECT_EQ(RunJson({"list"})["sessions"].size(), 1u);
  EXPECT_TRUE(fs::exists(options_.sessions_path + "/mine.txt"));
  EXPECT_FALSE(fs::exists(FileOf("two")));
}

TEST_F(SessionVerbTest, FoldersThatCannotBeUsedAreNamed) {
  const auto complaint = [&](const std::string& path) {
    options_.sessions_path = path;
    const ChildResult result = Run({"list"});
    EXPECT_NE(result.exit_code, 0) << path;
    EXPECT_NE(result.err.find(path), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
    return result.exit_code;
  };
  std::ofstream(folder_.File("file")) << "x";
  complaint(folder_.File("file"));
  complaint(folder_.File("missing") + "/sessions");
  fs::create_directory(folder_.File("open"));
  fs::permissions(folder_.File("open"), fs::perms::all);
  complaint(folder_.File("open"));
  fs::create_directory(folder_.File("real"));
  fs::permissions(folder_.File("real"), fs::perms::owner_all);
  fs::create_symlink(folder_.File("real"), folder_.File("link"));
  complaint(folder_.File("link"));
  complaint("/proc");
}

}  // namespace
}  // namespace lkv::cli
