#include "io/secret_key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string_view>
#include <vector>

#include "testing/test_paths.h"

namespace lkv {
namespace {

std::vector<uint8_t> Bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

SecretKey CountingKey() {
  std::array<uint8_t, SecretKey::kBytes> bytes;
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return SecretKey(bytes);
}

std::string Hex(const SecretKey& key) { return HexText(key.bytes()); }

// RFC 4231, test case 1.
TEST(SecretKeyTest, HmacHasThePublishedValue) {
  EXPECT_EQ(
      HexText(HmacSha256(std::vector<uint8_t>(20, 0x0b), Bytes("Hi There"))),
      "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

// From a few lines of Python that have RFC 5869's test case 1.
TEST(SecretKeyTest, DerivesWhatHkdfDerives) {
  std::array<uint8_t, 16> salt;
  std::iota(salt.begin(), salt.end(), uint8_t{0xa0});
  EXPECT_EQ(Hex(CountingKey().Derive(salt, "a purpose")),
            "1961205eea6c5b69c91926a1fabf31b2736ecebe523211489258166046dde66b");
  EXPECT_NE(Hex(CountingKey().Derive(salt, "another")),
            Hex(CountingKey().Derive(salt, "a purpose")));
}

TEST(SecretKeyTest, FillsWithWhatDiffersEachTime) {
  std::vector<uint8_t> one(1000), other(1000);
  FillRandom(one);
  FillRandom(other);
  EXPECT_NE(one, other);
  // 1000 bytes without one that occurs 30 times: sure enough (4 expected).
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_LT(std::count(one.begin(), one.end(), byte), 30);
  }
}

class KeyFileTest : public testing::Test {
 protected:
  void Write(std::string_view text, mode_t mode) {
    std::ofstream(path_) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }

  TempFolder folder_;
  const std::string path_ = folder_.File("key");
  const std::string text_ = "0123456789abcdefghijklmnopqrstuv";
};

TEST_F(KeyFileTest, IsReadWhenItIsTheOwnersAlone) {
  for (const mode_t mode : {0600, 0400}) {
    Write(text_, mode);
    const auto key = SecretKey::Load(path_);
    ASSERT_TRUE(key.ok()) << key.status().message();
    EXPECT_EQ(Hex(*key), HexText(Bytes(text_)));
    ASSERT_EQ(unlink(path_.c_str()), 0);
  }
}

TEST_F(KeyFileTest, IsRefusedWhenOthersMayReadIt) {
  Write(text_, 0640);
  EXPECT_EQ(SecretKey::Load(path_).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(KeyFileTest, IsRefusedWhenItIsNoKey) {
  EXPECT_EQ(SecretKey::Load(path_).status().code(), StatusCode::kNotFound);
  for (const std::string& text :
       {text_ + "w", text_.substr(1), std::string()}) {
    Write(text, 0600);
    EXPECT_EQ(SecretKey::Load(path_).status().code(),
              StatusCode::kInvalidArgument);
  }
  Write(text_, 0600);
  std::filesystem::create_symlink(path_, folder_.File("link"));
  EXPECT_EQ(SecretKey::Load(folder_.File("link")).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lkv
