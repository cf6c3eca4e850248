#include "gguf/gguf_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"

namespace lkv {
namespace {

TEST(GgufWriterTest, ReadsBackWhatItWrote) {
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> bytes =
      EncodeGguf({.strings = {{"general.architecture", "predictor"}},
                  .numbers = {{"lanes", 90}},
                  .reals = {{"loss", 0.25f}},
                  .tensors = {{"inner", {2, 3}, weights}, {"bias", {1}, {7}}}});
  const auto file = GgufFile::FromBytes("in memory", bytes);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->GetString("general.architecture"), "predictor");
  EXPECT_EQ((*file)->GetUint("lanes"), 90u);
  EXPECT_EQ((*file)->GetFloat("loss"), 0.25);
  const GgufTensor* inner = (*file)->Find("inner");
  ASSERT_NE(inner, nullptr);
  EXPECT_EQ(inner->type, GgufType::kF32);
  EXPECT_EQ(inner->shape, (std::vector<uint64_t>{2, 3}));
  ASSERT_EQ(inner->n_bytes, weights.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(inner->data, weights.data(), inner->n_bytes), 0);
  const GgufTensor* bias = (*file)->Find("bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(std::memcmp(bias->data, "\0\0\xe0\x40", 4), 0) << "7.0f";
  EXPECT_TRUE((*file)->CheckWhole().ok());
}

TEST(GgufWriterTest, RefusesEveryCutOfIt) {
  const std::vector<uint8_t> bytes =
      EncodeGguf({.strings = {},
                  .numbers = {},
                  .reals = {},
                  .tensors = {{"t", {8}, std::vector<float>(8, 1)}}});
  for (size_t n = 0; n < bytes.size(); ++n) {
    const auto file = GgufFile::FromBytes("cut", {bytes.data(), n});
    EXPECT_EQ(file.status().code(), StatusCode::kCorrupt) << n << " bytes";
  }
}

}  // namespace
}  // namespace lkv
