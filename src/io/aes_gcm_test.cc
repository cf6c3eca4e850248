#include "io/aes_gcm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace lkv {
namespace {

std::vector<uint8_t> FromHex(std::string_view hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(
        std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

template <typename Array>
Array ArrayFromHex(std::string_view hex) {
  Array array = {};
  const std::vector<uint8_t> bytes = FromHex(hex);
  std::copy(bytes.begin(), bytes.end(), array.begin());
  return array;
}

// Test case 16 of the paper in which the mode was proposed.
class AesGcmTest : public testing::Test {
 protected:
  std::vector<uint8_t> Open(const std::vector<uint8_t>& associated,
                            const GcmTag& tag, bool* is_genuine) const {
    AesGcm opening(AesGcm::Direction::kOpen, key_, nonce_, associated);
    std::vector<uint8_t> bytes = sealed_;
    opening.Add(bytes, bytes.data());
    *is_genuine = opening.FinishOpen(tag);
    return bytes;
  }

  const SecretKey key_{ArrayFromHex<std::array<uint8_t, 32>>(
      "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308")};
  const GcmNonce nonce_ = ArrayFromHex<GcmNonce>("cafebabefacedbaddecaf888");
  const std::vector<uint8_t> associated_ =
      FromHex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  const std::vector<uint8_t> plain_ = FromHex(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
      "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
  std::vector<uint8_t> sealed_ = FromHex(
      "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
      "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662");
  const GcmTag tag_ = ArrayFromHex<GcmTag>("76fc6ece0f4e1768cddf8853bb2d551b");
};

TEST_F(AesGcmTest, HasThePublishedValueHoweverItIsCut) {
  AesGcm sealing(AesGcm::Direction::kSeal, key_, nonce_, associated_);
  std::vector<uint8_t> bytes(plain_.size());
  sealing.Add(std::span(plain_).first(5), bytes.data());
  sealing.Add(std::span(plain_).subspan(5), bytes.data() + 5);
  EXPECT_EQ(bytes, sealed_);
  EXPECT_EQ(sealing.FinishSeal(), tag_);
}

TEST_F(AesGcmTest, OpensInPlace) {
  bool is_genuine = false;
  EXPECT_EQ(Open(associated_, tag_, &is_genuine), plain_);
  EXPECT_TRUE(is_genuine);
}

TEST_F(AesGcmTest, SeesEveryChange) {
  bool is_genuine = true;
  GcmTag tag = tag_;
  tag[15] ^= 1;
  Open(associated_, tag, &is_genuine);
  EXPECT_FALSE(is_genuine);
  std::vector<uint8_t> associated = associated_;
  associated[0] ^= 1;
  Open(associated, tag_, &is_genuine);
  EXPECT_FALSE(is_genuine);
  sealed_[59] ^= 1;
  Open(associated_, tag_, &is_genuine);
  EXPECT_FALSE(is_genuine);
}

}  // namespace
}  // namespace lkv
