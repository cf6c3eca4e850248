// What a reader believes of a file, and what it says of one that it does not.

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "io/sha256.h"
#include "session/testing_sessions.h"
#include "testing/memory_folder.h"

namespace lkv {
namespace {

class SessionFileTest : public testing::Test {
 protected:
  // The bytes of a session as written.
  static std::vector<uint8_t> Written(const SessionSpec& spec,
                                      const WriteOptions& options) {
    MemoryFolder folder;
    const PayloadBound bound = TestBound(kTestBlockBytes);
    auto writer = SessionWriter::Begin(folder, spec, bound, options);
    EXPECT_TRUE(writer.ok()) << writer.status().message();
    EXPECT_TRUE(AppendTestBlocks(**writer, 1, kTestBlockBytes).ok());
    EXPECT_TRUE((*writer)->Finish().ok());
    EXPECT_TRUE((*writer)->Publish("s").ok());
    EXPECT_LE(folder.Contents("s").size(), SessionBytesMax(spec, bound));
    return folder.Contents("s");
  }
  static std::vector<uint8_t> Plain() {
    return Written(TestSpec("a name"), {.file_id = {1, 2}, .generation = 5});
  }
  std::vector<uint8_t> Sealed() const {
    return Written(TestSpec("a name"),
                   {.file_id = {1, 2}, .generation = 5, .master_key = &key_});
  }

  // What is wrong with these bytes; empty if they are sound to the last block.
  static std::string Complaint(std::vector<uint8_t> bytes,
                               const SessionAccess& access = {}) {
    const auto reader = OpenBytes(std::move(bytes), access);
    if (!reader.ok()) return std::string(reader.status().message());
    return std::string(CheckTestBlocks(**reader, 1, kTestBlockBytes).message());
  }

  const SecretKey key_ = TestKey();
  const SessionAccess with_key_ = {.master_key = &key_};
};

TEST_F(SessionFileTest, HasWhatWasWritten) {
  const SessionSpec spec = TestSpec(std::string("any\0\xff bytes", 11));
  const auto reader = OpenBytes(Written(
      spec, {.file_id = {7}, .created_unix_s = 1234567, .generation = 5}));
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ((*reader)->text().name, spec.name);
  EXPECT_EQ((*reader)->text().tokens, spec.tokens);
  EXPECT_EQ((*reader)->text().chain,
            TokenChain(spec.owner.chain_seed, spec.tokens));
  EXPECT_EQ((*reader)->fingerprint().axes(), spec.fingerprint.axes());
  EXPECT_EQ((*reader)->owner_tag(), spec.owner.tag);
  EXPECT_EQ((*reader)->n_tokens(), 100u);
  EXPECT_EQ((*reader)->complete_tokens(), 100u);
  EXPECT_EQ((*reader)->header().created_unix_s, 1234567);
  EXPECT_EQ((*reader)->header().generation, 5u);
  EXPECT_EQ((*reader)->header().file_id, (FileId{7}));
  EXPECT_TRUE((*reader)->Verify().ok());
  const Status blocks = CheckTestBlocks(**reader, 1, kTestBlockBytes);
  EXPECT_TRUE(blocks.ok()) << blocks.message();
  const BlockEntry& entry = (*reader)->blocks()[2];
  EXPECT_EQ(entry.info.kind, 3u);
  EXPECT_EQ(entry.info.positions.begin, 2u);
  EXPECT_EQ(entry.info.positions.end, 12u);
  EXPECT_EQ(entry.info.lanes.end, 3u);
}

TEST_F(SessionFileTest, LoadsOneBlockIntoMemoryOfAnySize) {
  const auto reader = OpenBytes(Plain());
  const std::vector<uint8_t> expected = TestBlock(1, 0, 5000);
  for (const size_t room : {5000, 6000, 8192, 9000}) {
    std::vector<uint8_t> out(room);
    ASSERT_TRUE((*reader)->LoadBlock(0, out).ok()) << room;
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin()));
  }
  EXPECT_EQ((*reader)->BufferBytes(0), 8192u);
}

// Files of a released version must stay readable: whoever changes this sum
// raises the version.
TEST_F(SessionFileTest, OfVersion1IsTheSameBytesForEver) {
  Sha256 hash;
  hash.Add(Plain());
  EXPECT_EQ(hash.Hex(),
            "9b919275ff817f8771864a9d55a8dbefce1ec767034e5bb47cfc9a6765d81a41");
  Sha256 sealed;
  sealed.Add(Sealed());
  EXPECT_EQ(sealed.Hex(),
            "2089d5473cadd917c9a395b87af2d2f62bf898699ead4cd0ee437c697ee68094");
}

TEST_F(SessionFileTest, ExtentsBeginAtWholeBlocksOfTheDisk) {
  const std::vector<uint8_t> bytes = Plain();
  EXPECT_EQ(bytes.size() % kIoBlockBytes, 0u);
  const auto reader = OpenBytes(bytes);
  for (const BlockEntry& entry : (*reader)->blocks()) {
    EXPECT_EQ(entry.offset % kIoBlockBytes, 0u);
  }
}

TEST_F(SessionFileTest, OfAnotherFingerprintIsRefusedByTheAxis) {
  const Fingerprint same = TestFingerprint();
  for (const auto& [axis, value] : same.axes()) {
    Fingerprint wanted = same;
    wanted.Set(axis, "other");
    const auto reader = OpenBytes(Plain(), {.fingerprint = &wanted});
    ASSERT_FALSE(reader.ok());
    EXPECT_EQ(reader.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(reader.status().message().find(axis + " is " + value +
                                             " instead of other"),
              std::string::npos)
        << reader.status().message();
  }
  EXPECT_TRUE(OpenBytes(Plain(), {.fingerprint = &same}).ok());
}

TEST_F(SessionFileTest, OfAnotherOwnerIsRefused) {
  const SessionOwner owner = TestOwner(), other = TestOwner(9);
  EXPECT_EQ(Complaint(Plain(), {.owner = &owner}), "");
  EXPECT_NE(Complaint(Plain(), {.owner = &other}).find("another owner"),
            std::string::npos);
}

TEST_F(SessionFileTest, EveryFlippedByteIsSeenOrDoesNotMatter) {
  const std::vector<uint8_t> plain = Plain();
  size_t n_seen = 0;
  for (size_t at = 0; at < plain.size(); ++at) {
    std::vector<uint8_t> bytes = plain;
    bytes[at] ^= static_cast<uint8_t>(1 << at % 8);
    const std::string complaint = Complaint(std::move(bytes));
    n_seen += !complaint.empty();
    ASSERT_TRUE(complaint.empty() || complaint.starts_with("session s"))
        << at << ": " << complaint;
  }
  // All but the padding behind the front, the blocks, the index and the last
  // field of the footer.
  const uint64_t front_bytes = (*OpenBytes(plain))->header().front_bytes;
  EXPECT_EQ(n_seen, kHeaderBytes + front_bytes + 5000 + 4096 + 1 +
                        kTestBlockBytes.size() * kBlockEntryBytes +
                        kFooterBytes);
}

TEST_F(SessionFileTest, CutOffAnywhereIsRefused) {
  const std::vector<uint8_t> plain = Plain();
  for (size_t n = 0; n < plain.size(); n += n % 64 == 1 ? 1 : 7) {
    const auto reader = OpenBytes({plain.begin(), plain.begin() + n});
    ASSERT_FALSE(reader.ok()) << n;
    EXPECT_EQ(reader.status().code(), StatusCode::kCorrupt);
  }
}

TEST_F(SessionFileTest, WithMoreBehindItsEndIsRefused) {
  std::vector<uint8_t> bytes = Plain();
  bytes.resize(bytes.size() + 4096);
  EXPECT_NE(Complaint(bytes).find("has no end"), std::string::npos);
  std::vector<uint8_t> twice = Plain();
  const std::vector<uint8_t> plain = Plain();
  twice.insert(twice.end(), plain.begin(), plain.end());
  EXPECT_NE(Complaint(twice).find("belongs to another file"),
            std::string::npos);
}

TEST_F(SessionFileTest, ThatIsNoneIsRefused) {
  std::mt19937_64 random(7);
  EXPECT_NE(Complaint({}).find("has 0 bytes"), std::string::npos);
  std::vector<uint8_t> bytes(20000);
  EXPECT_NE(Complaint(bytes).find("is no session file"), std::string::npos);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  EXPECT_NE(Complaint(bytes).find("is no session file"), std::string::npos);
}

TEST_F(SessionFileTest, WithTheEndOfAnotherFileIsRefused) {
  std::vector<uint8_t> bytes = Plain();
  const std::vector<uint8_t> other =
      Written(TestSpec("a name"), {.file_id = {9}, .generation = 5});
  ASSERT_EQ(bytes.size(), other.size());
  std::copy(other.end() - 4096, other.end(), bytes.end() - 4096);
  EXPECT_NE(Complaint(bytes).find("belongs to another file"),
            std::string::npos);
}

// Changes that whoever repairs the checksums could make: each has its own
// refusal.
TEST_F(SessionFileTest, OfAnotherVersionOrKindIsRefusedByName) {
  const struct {
    size_t offset;
    uint8_t byte;
    std::string_view says;
  } kChanges[] = {
      {8, 2, "has format version 2.0"},
      {12, 1, "another byte order"},
      {16, 6, "features that this program does not know (6)"},
  };
  for (const auto& change : kChanges) {
    std::vector<uint8_t> bytes = Plain();
    bytes[change.offset] = change.byte;
    RepairChecksums(bytes);
    const auto reader = OpenBytes(bytes);
    ASSERT_FALSE(reader.ok()) << change.says;
    EXPECT_EQ(reader.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(reader.status().message().find(change.says), std::string::npos)
        << reader.status().message();
  }
}

TEST_F(SessionFileTest, OfANewerMinorVersionIsReadAndSaysSo) {
  std::vector<uint8_t> bytes = Plain();
  bytes[10] = kSessionMinor + 1;
  bytes[20] = 1;  // a flag that may be ignored
  RepairChecksums(bytes);
  const auto reader = OpenBytes(bytes);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_TRUE((*reader)->is_newer());
  EXPECT_FALSE((*OpenBytes(Plain()))->is_newer());
}

TEST_F(SessionFileTest, WithTheIndexOfAnEarlierGenerationIsRefused) {
  std::vector<uint8_t> bytes = Plain();
  bytes[48] = 6;  // the header's generation
  RepairChecksums(bytes);
  EXPECT_NE(Complaint(bytes).find("block 0 is not possible"),
            std::string::npos);
}

TEST_F(SessionFileTest, SealedShowsNeitherTextNorBlocks) {
  const std::vector<uint8_t> sealed = Sealed();
  const std::vector<uint8_t> tokens = EncodeText({"a name", {}, {}});
  const std::vector<uint8_t> block = TestBlock(1, 0, 64);
  const auto shows = [](const std::vector<uint8_t>& bytes,
                        const std::vector<uint8_t>& part) {
    return std::search(bytes.begin(), bytes.end(), part.begin(), part.end()) !=
           bytes.end();
  };
  EXPECT_TRUE(shows(Plain(), tokens) && shows(Plain(), block));
  EXPECT_FALSE(shows(sealed, tokens) || shows(sealed, block));
}

TEST_F(SessionFileTest, SealedIsReadWithItsKeyAlone) {
  const SecretKey other = TestKey(9);
  EXPECT_EQ(Complaint(Sealed(), with_key_), "");
  EXPECT_NE(Complaint(Sealed(), {.master_key = &other}).find("another key"),
            std::string::npos);
  const auto locked = OpenBytes(Sealed());
  ASSERT_TRUE(locked.ok());
  EXPECT_TRUE((*locked)->is_locked());
  EXPECT_TRUE((*locked)->text().tokens.empty());
  EXPECT_EQ((*locked)->n_tokens(), 100u);
  EXPECT_TRUE((*locked)->Verify().ok()) << "damage is found without the key";
}

// With all checksums right, only the key tells that something was changed.
TEST_F(SessionFileTest, SealedAndForgedIsRefused) {
  const SessionOwner owner = TestOwner();
  const std::vector<uint8_t> sealed = Sealed();
  const uint64_t front_bytes = (*OpenBytes(sealed))->header().front_bytes;
  const uint64_t index_offset =
      sealed.size() - TailBytes(kTestBlockBytes.size());
  const auto owner_offset =
      static_cast<size_t>(std::search(sealed.begin(), sealed.end(),
                                      owner.tag.begin(), owner.tag.end()) -
                          sealed.begin());
  const struct {
    size_t offset;
    std::string_view says;
  } kChanges[] = {
      {kHeaderBytes + front_bytes - 1, "its text was forged"},
      {40, "its text was forged"},  // creation time
      {owner_offset, "its text was forged"},
      {index_offset, "block 0: was forged"},           // kind
      {index_offset + 28, "block 0: was forged"},      // lanes
      {index_offset + 80 + 60, "block 1: was forged"}  // tag
  };
  for (const auto& change : kChanges) {
    std::vector<uint8_t> bytes = sealed;
    bytes[change.offset] ^= 1;
    RepairChecksums(bytes);
    const std::string complaint = Complaint(bytes, with_key_);
    EXPECT_NE(complaint.find(change.says), std::string::npos)
        << change.offset << ": " << complaint;
  }
}

TEST_F(SessionFileTest, SealedTwiceDiffersEverywhere) {
  const WriteOptions once = {.file_id = {1}, .master_key = &key_};
  const WriteOptions again = {.file_id = {2}, .master_key = &key_};
  const std::vector<uint8_t> a = Written(TestSpec("a"), once);
  const std::vector<uint8_t> b = Written(TestSpec("a"), again);
  const uint64_t payload = PayloadOffset((*OpenBytes(a))->header().front_bytes);
  EXPECT_FALSE(std::equal(a.begin() + payload, a.begin() + payload + 32,
                          b.begin() + payload));
}

}  // namespace
}  // namespace lkv
