#include "gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "testing/gguf_bytes.h"
#include "testing/random_model.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

float FirstValue(const GgufTensor& tensor) {
  float value = 0;
  std::memcpy(&value, tensor.data, sizeof(value));
  return value;
}

std::unique_ptr<GgufFile> MustOpen(const std::string& path) {
  Result<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? std::move(*file) : nullptr;
}

TEST(GgufFileTest, ReadsTheQuickstartModel) {
  auto file = MustOpen(TestModelPath());
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->GetString("general.architecture"), "llama");
  EXPECT_EQ(file->GetUint("llama.block_count"), 30u);
  EXPECT_NEAR(*file->GetFloat("llama.attention.layer_norm_rms_epsilon"), 1e-5,
              1e-9);
  EXPECT_EQ(file->GetArrayLength("tokenizer.ggml.tokens"), 49152u);
  EXPECT_EQ(file->tensors().size(), 272u);

  const GgufTensor* down = file->Find("blk.29.ffn_down.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->type, GgufType::kQ4_1);
  EXPECT_EQ(down->shape, (std::vector<uint64_t>{1536, 576}));
  EXPECT_EQ(down->row_bytes, 1536u / 32 * 20);
  EXPECT_EQ(down->n_bytes, 576u * down->row_bytes);
  EXPECT_EQ(file->Find("blk.30.ffn_down.weight"), nullptr);
}

TEST(GgufFileTest, TensorsOfARandomModelHaveTheirShapesAndValues) {
  TempFolder folder;
  RandomModelOptions options;
  options.rope_frequency_factors.assign(32, 2.5f);
  WriteRandomModel(folder.File("m.gguf"), options);
  auto file = MustOpen(folder.File("m.gguf"));
  ASSERT_NE(file, nullptr);
  const GgufTensor* factors = file->Find("rope_freqs.weight");
  ASSERT_NE(factors, nullptr);
  EXPECT_EQ(factors->shape, (std::vector<uint64_t>{32}));
  EXPECT_EQ(FirstValue(*factors), 2.5f);
  const GgufTensor* embedding = file->Find("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->shape, (std::vector<uint64_t>{256, 320}));
}

TEST(GgufFileTest, MetadataComesWithItsTypeOrNotAtAll) {
  TempFolder folder;
  GgufBytes bytes;
  bytes.Header(0, 9)
      .Key("u8", GgufBytes::kU8, uint8_t{200})
      .Key("i32", GgufBytes::kI32, int32_t{-5})
      .Key("u64", GgufBytes::kU64, ~uint64_t{0})
      .Key("f64", GgufBytes::kF64, 0.25)
      .Key("yes", GgufBytes::kBool, uint8_t{1})
      .StringKey("text", "value")
      .ArrayKey("counts", GgufBytes::kI32, 2)
      .Put(int32_t{4})
      .Put(int32_t{8})
      .ArrayKey("negative", GgufBytes::kI32, 1)
      .Put(int32_t{-1})
      .ArrayKey("names", GgufBytes::kString, 2)
      .String("a")
      .String("");
  WriteBytes(folder.File("meta.gguf"), bytes.bytes());
  auto file = MustOpen(folder.File("meta.gguf"));
  ASSERT_NE(file, nullptr);

  EXPECT_EQ(file->GetUint("u8"), 200u);
  EXPECT_EQ(file->GetUint("i32"), std::nullopt);
  EXPECT_EQ(file->GetUint("u64"), ~uint64_t{0});
  EXPECT_EQ(file->GetUint("f64"), std::nullopt);
  EXPECT_EQ(file->GetUint("yes"), std::nullopt);
  EXPECT_EQ(file->GetUint("text"), std::nullopt);
  EXPECT_EQ(file->GetUint("counts"), std::nullopt);
  EXPECT_EQ(file->GetUint("absent"), std::nullopt);
  EXPECT_EQ(file->GetFloat("f64"), 0.25);
  EXPECT_EQ(file->GetFloat("u8"), std::nullopt);
  EXPECT_EQ(file->GetBool("yes"), true);
  EXPECT_EQ(file->GetBool("u8"), std::nullopt);
  EXPECT_EQ(file->GetString("text"), "value");
  EXPECT_EQ(file->GetString("u8"), std::nullopt);
  EXPECT_EQ(file->GetArrayLength("names"), 2u);
  EXPECT_EQ(file->GetArrayLength("u8"), std::nullopt);
  EXPECT_EQ(file->GetUintArray("counts"), (std::vector<uint64_t>{4, 8}));
  EXPECT_EQ(file->GetUintArray("negative"), std::nullopt);
  EXPECT_EQ(file->GetUintArray("names"), std::nullopt);
}

TEST(GgufFileTest, TheFingerprintTellsModelsApart) {
  TempFolder folder;
  const auto fingerprint = [&](const RandomModelOptions& options) {
    WriteRandomModel(folder.File("m.gguf"), options);
    auto file = MustOpen(folder.File("m.gguf"));
    return file == nullptr ? "" : file->Fingerprint();
  };
  const RandomModelOptions options;
  const std::string one = fingerprint(options);
  EXPECT_EQ(one.size(), 64u);
  EXPECT_EQ(fingerprint(options), one);
  RandomModelOptions other_values = options;
  other_values.seed = options.seed + 1;
  EXPECT_NE(fingerprint(other_values), one);
  RandomModelOptions other_metadata = options;
  other_metadata.rope_frequency_base = 2 * options.rope_frequency_base;
  EXPECT_NE(fingerprint(other_metadata), one);
}

TEST(GgufFileTest, DroppedPagesStayReadable) {
  auto file = MustOpen(TestModelPath());
  ASSERT_NE(file, nullptr);
  for (const GgufTensor& tensor : file->tensors()) {
    uint8_t first = tensor.data[0];
    uint8_t last = tensor.data[tensor.n_bytes - 1];
    file->DropPages(tensor);
    EXPECT_EQ(tensor.data[0], first);
    EXPECT_EQ(tensor.data[tensor.n_bytes - 1], last);
  }
}

// --- Split models ----------------------------------------------------------

// One f32 tensor [8] of equal values per part.
std::string PartBytes(const std::string& tensor, float value, uint16_t number,
                      uint16_t count, int32_t n_tensors_of_all) {
  GgufBytes bytes;
  bytes.Header(1, 3)
      .Key("split.no", GgufBytes::kU16, number)
      .Key("split.count", GgufBytes::kU16, count)
      .Key("split.tensors.count", GgufBytes::kI32, n_tensors_of_all)
      .Tensor(tensor, {8}, GgufBytes::kTensorF32, 0)
      .Pad();
  for (int i = 0; i < 8; ++i) bytes.Put(value);
  return bytes.bytes();
}

class SplitModelTest : public ::testing::Test {
 protected:
  SplitModelTest() {
    WriteBytes(first_, PartBytes("a", 1.0f, 0, 2, 2));
    WriteBytes(second_, PartBytes("b", 2.0f, 1, 2, 2));
  }
  // The message of a refused Open; "" when it was accepted.
  std::string Refusal(const std::string& path) {
    auto file = GgufFile::Open(path);
    if (file.ok()) return "";
    EXPECT_TRUE(file.status().code() == StatusCode::kCorrupt ||
                file.status().code() == StatusCode::kNotFound);
    return std::string(file.status().message());
  }

  TempFolder folder_;
  const std::string first_ = folder_.File("m-00001-of-00002.gguf");
  const std::string second_ = folder_.File("m-00002-of-00002.gguf");
};

TEST_F(SplitModelTest, TensorsOfAllPartsAreFound) {
  auto file = MustOpen(first_);
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(FirstValue(*file->Find("a")), 1.0f);
  EXPECT_EQ(FirstValue(*file->Find("b")), 2.0f);
  file->DropPages(*file->Find("b"));
  EXPECT_EQ(FirstValue(*file->Find("b")), 2.0f);
}

TEST_F(SplitModelTest, AMissingPartIsNamed) {
  std::filesystem::remove(second_);
  EXPECT_NE(Refusal(first_).find("m-00002-of-00002.gguf"), std::string::npos);
}

TEST_F(SplitModelTest, ALaterPartAsksForTheFirst) {
  EXPECT_NE(Refusal(second_).find("give part 1"), std::string::npos);
}

TEST_F(SplitModelTest, ARenamedFirstPartIsExplained) {
  std::filesystem::rename(first_, folder_.File("model.gguf"));
  EXPECT_NE(Refusal(folder_.File("model.gguf")).find("-00001-of-00002.gguf"),
            std::string::npos);
}

TEST_F(SplitModelTest, APartOfAnotherModelIsRefused) {
  WriteBytes(second_, PartBytes("b", 2.0f, 1, 3, 2));
  EXPECT_NE(
      Refusal(first_).find("part 2 of 2 (split.no is 1, split.count is 3)"),
      std::string::npos);
}

TEST_F(SplitModelTest, ATensorInTwoPartsIsRefused) {
  WriteBytes(second_, PartBytes("a", 2.0f, 1, 2, 2));
  EXPECT_NE(Refusal(first_).find("tensor 'a' is in two parts"),
            std::string::npos);
}

TEST_F(SplitModelTest, AMissingTensorIsNoticedByTheirNumber) {
  WriteBytes(first_, PartBytes("a", 1.0f, 0, 2, 3));
  EXPECT_NE(Refusal(first_).find("2 of the 3 tensors"), std::string::npos);
}

TEST_F(SplitModelTest, ATruncatedPartIsNamed) {
  std::filesystem::resize_file(second_, 100);
  EXPECT_NE(Refusal(first_).find(second_), std::string::npos);
}

}  // namespace
}  // namespace lkv
