#include "train/predictor_file.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "gguf/gguf_writer.h"
#include "testing/memory_file_system.h"

namespace lkv {
namespace {

constexpr uint32_t kLanes = 6;

PredictorFile SmallPredictor() {
  PredictorFile predictor{.model = "0123", .network = HistoryNetwork(kLanes)};
  HistoryNetwork& network = predictor.network;
  float next = 0;
  for (std::vector<float>* values :
       {&network.inner, &network.hidden_bias, &network.outer, &network.direct,
        &network.bias}) {
    for (float& value : *values) value = next += 0.5f;
  }
  return predictor;
}

class PredictorFileTest : public testing::Test {
 protected:
  void Write(const PredictorFile& predictor) {
    ASSERT_TRUE(WritePredictor(files_, "p.gguf", predictor).ok());
  }
  Result<PredictorFile> Read() {
    auto file = GgufFile::FromBytes("p.gguf", files_.files["p.gguf"]);
    if (!file.ok()) return file.status();
    return ReadPredictor(**file);
  }
  MemoryFileSystem files_;
};

TEST_F(PredictorFileTest, GivesBackWhatWasWritten) {
  const PredictorFile written = SmallPredictor();
  Write(written);
  const auto read = Read();
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->model, "0123");
  EXPECT_EQ(read->network.inner, written.network.inner);
  EXPECT_EQ(read->network.hidden_bias, written.network.hidden_bias);
  EXPECT_EQ(read->network.outer, written.network.outer);
  EXPECT_EQ(read->network.direct, written.network.direct);
  EXPECT_EQ(read->network.bias, written.network.bias);
}

TEST_F(PredictorFileTest, ServesTheModelThatItWasTrainedForOnly) {
  Write(SmallPredictor());
  const auto file = GgufFile::FromBytes("p.gguf", files_.files["p.gguf"]);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(NetworkFor(**file, "0123", kLanes).ok());
  const Status other = NetworkFor(**file, "4567", kLanes).status();
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(other.message().find("p.gguf: "), 0u);
  EXPECT_FALSE(NetworkFor(**file, "0123", kLanes + 1).ok());
}

TEST_F(PredictorFileTest, RefusesNumbersThatAreNone) {
  PredictorFile predictor = SmallPredictor();
  predictor.network.outer[3] = std::numeric_limits<float>::infinity();
  Write(predictor);
  EXPECT_EQ(Read().status().code(), StatusCode::kCorrupt);
}

// Another predictor file than ours: some tensors, of any size.
Status ReadOther(uint32_t version,
                 const std::vector<GgufContent::Tensor>& tensors) {
  const std::vector<uint8_t> bytes = EncodeGguf(
      {.strings = {{"general.architecture", "lookaheadkv-predictor"}},
       .numbers = {{"lookaheadkv.predictor.version", version}},
       .reals = {},
       .tensors = tensors});
  const auto file = GgufFile::FromBytes("other.gguf", bytes);
  EXPECT_TRUE(file.ok());
  return ReadPredictor(**file).status();
}

TEST_F(PredictorFileTest, RefusesOtherVersionsAndSizesThatDoNotFit) {
  const GgufContent::Tensor bias = {"bias", {2}, {1, 2}};
  const Status version = ReadOther(2, {bias});
  EXPECT_EQ(version.code(), StatusCode::kCorrupt);
  EXPECT_NE(version.message().find("version 2"), std::string::npos);
  const Status none = ReadOther(1, {{"outer", {2}, {1, 2}}});
  EXPECT_NE(none.message().find("tensor bias"), std::string::npos);
  const Status size = ReadOther(1, {bias, {"inner", {2}, {1, 2}}});
  EXPECT_NE(size.message().find("tensor inner"), std::string::npos);
}

TEST_F(PredictorFileTest, RefusesFilesThatAreNoPredictor) {
  const std::vector<uint8_t> bytes =
      EncodeGguf({.strings = {{"general.architecture", "llama"}},
                  .numbers = {},
                  .reals = {},
                  .tensors = {{"bias", {1}, {1}}}});
  const auto file = GgufFile::FromBytes("model.gguf", bytes);
  ASSERT_TRUE(file.ok());
  const Status status = ReadPredictor(**file).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("model.gguf: is no predictor"),
            std::string::npos);
}

TEST_F(PredictorFileTest, RefusesEveryCut) {
  Write(SmallPredictor());
  std::vector<uint8_t>& bytes = files_.files["p.gguf"];
  const std::vector<uint8_t> whole = bytes;
  for (size_t n = 0; n < whole.size(); ++n) {
    bytes.assign(whole.begin(), whole.begin() + static_cast<long>(n));
    EXPECT_EQ(Read().status().code(), StatusCode::kCorrupt) << n << " bytes";
  }
}

TEST_F(PredictorFileTest, LeavesTheOldFileWhenTheDiskIsFull) {
  Write(SmallPredictor());
  const std::vector<uint8_t> before = files_.files["p.gguf"];
  files_.free_bytes = 100;
  EXPECT_EQ(WritePredictor(files_, "p.gguf", SmallPredictor()).code(),
            StatusCode::kIo);
  EXPECT_EQ(files_.files["p.gguf"], before);
}

}  // namespace
}  // namespace lkv
