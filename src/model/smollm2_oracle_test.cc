// The reference executor against libllama on a real model and real text. Both
// read the same F32 weights over an f32 cache, so they should differ by
// rounding only.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cache/dense_kv_cache.h"
#include "gguf/gguf_file.h"
#include "model/reference_executor.h"
#include "testing/llama_oracle.h"
#include "testing/oracle_comparison.h"
#include "testing/random_model.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

constexpr size_t kTestTokens = 1000;

class SmolLm2OracleTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>();
    RequantizeModel(TestModelPath(), Path(), GGML_TYPE_F32);
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string Path() { return folder_->File("f32.gguf"); }

  static void ExpectSamePredictions(const std::string& text_path) {
    const auto tokens = TokensOfFile(Path(), text_path, kTestTokens);
    std::vector<float> truth, actual;
    size_t vocab_size = 0;
    {
      auto oracle = LlamaOracle::Open(Path(), {});
      ASSERT_NE(oracle, nullptr);
      vocab_size = oracle->vocab_size();
      truth = oracle->Logits(tokens);
    }
    {
      auto file = GgufFile::Open(Path());
      ASSERT_TRUE(file.ok()) << file.status().message();
      auto executor = MakeReferenceExecutor(**file);
      ASSERT_TRUE(executor.ok()) << executor.status().message();
      DenseKvCache cache((*executor)->architecture().kv_shape());
      actual =
          RunTokens(**executor, cache, tokens, (*executor)->max_step_tokens());
    }
    const LogitDistance distance = MeasureDistance(truth, actual, vocab_size);
    std::printf("%s: mean KL %.2e, top-1 agreement %.4f, largest %.2e\n",
                text_path.c_str(), distance.mean_kl, distance.top1_agreement,
                distance.largest_of_rms);
    EXPECT_LE(distance.mean_kl, 1e-5);
    EXPECT_GE(distance.top1_agreement, 0.998);
  }

 private:
  static std::unique_ptr<TempFolder> folder_;
};
std::unique_ptr<TempFolder> SmolLm2OracleTest::folder_;

TEST_F(SmolLm2OracleTest, ProseIsPredictedAsLibllamaDoes) {
  ExpectSamePredictions("/usr/share/common-licenses/GPL-3");
}

TEST_F(SmolLm2OracleTest, CodeIsPredictedAsLibllamaDoes) {
  ExpectSamePredictions(LKV_LLAMA_CPP_DIR "/src/llama-graph.cpp");
}

}  // namespace
}  // namespace lkv
