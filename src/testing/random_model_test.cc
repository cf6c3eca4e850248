#include "testing/random_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>

#include "testing/llama_oracle.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

double MeanAbsoluteDifference(const std::vector<float>& a,
                              const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

std::vector<int32_t> CountUp(int32_t n) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 1);
  return tokens;
}

struct Case {
  const char* name;
  RandomModelOptions options;
};

RandomModelOptions With(RandomModelOptions options,
                        void (*change)(RandomModelOptions*)) {
  change(&options);
  return options;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    cases.push_back({family, RandomModelOf(family)});
  }
  for (ggml_type type :
       {GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,
        GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_Q2_K,
        GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K,
        GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_TQ2_0}) {
    RandomModelOptions options;
    options.matrix_type = type;
    cases.push_back({ggml_type_name(type), options});
  }
  cases.push_back(
      {"tied", With({}, [](RandomModelOptions* o) { o->tied_output = true; })});
  cases.push_back({"linear", With({}, [](RandomModelOptions* o) {
                     o->rope_scaling = "linear";
                     o->rope_factor = 4.0f;
                   })});
  cases.push_back(
      {"yarn", With(RandomModelOf("qwen2"), [](RandomModelOptions* o) {
         o->rope_scaling = "yarn";
         o->rope_factor = 4.0f;
         o->rope_original_context = 1024;
       })});
  cases.push_back({"rope_freqs", With({}, [](RandomModelOptions* o) {
                     o->rope_frequency_factors.assign(32, 2.0f);
                   })});
  return cases;
}

class RandomModelTest : public ::testing::TestWithParam<Case> {};

TEST_P(RandomModelTest, RunsInLibllamaWithLogitsNearUnitVariance) {
  TempFolder folder;
  const std::string path = folder.File("model.gguf");
  WriteRandomModel(path, GetParam().options);
  auto oracle = LlamaOracle::Open(path, {});
  ASSERT_NE(oracle, nullptr);
  ASSERT_EQ(oracle->vocab_size(), GetParam().options.vocab_size);

  std::vector<float> logits = oracle->Logits(CountUp(40));
  double sum_of_squares = 0;
  for (float x : logits) {
    ASSERT_TRUE(std::isfinite(x));
    sum_of_squares += double{x} * x;
  }
  double rms = std::sqrt(sum_of_squares / static_cast<double>(logits.size()));
  EXPECT_GT(rms, 0.3);
  EXPECT_LT(rms, 3.0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RandomModelTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// Options that steer the forward pass must reach libllama: a key that is
// spelt wrong would be ignored without a word.
TEST(RandomModelEffectTest, EveryRopeOptionChangesTheLogits) {
  TempFolder folder;
  auto logits_of = [&](const RandomModelOptions& options) {
    const std::string path = folder.File("effect.gguf");
    WriteRandomModel(path, options);
    return LlamaOracle::Open(path, {})->Logits(CountUp(40));
  };
  const RandomModelOptions base;
  const std::vector<float> plain = logits_of(base);
  auto expect_change = [&](const char* what, auto change) {
    RandomModelOptions options = base;
    change(&options);
    EXPECT_GT(MeanAbsoluteDifference(plain, logits_of(options)), 1e-3) << what;
  };
  expect_change("base", [](auto* o) { o->rope_frequency_base = 1e6f; });
  expect_change("linear", [](auto* o) {
    o->rope_scaling = "linear";
    o->rope_factor = 4;
  });
  expect_change("yarn", [](auto* o) {
    o->rope_scaling = "yarn";
    o->rope_factor = 4;
    o->rope_original_context = 1024;
  });
  expect_change("factors",
                [](auto* o) { o->rope_frequency_factors.assign(32, 2.0f); });
  expect_change("epsilon", [](auto* o) { o->norm_epsilon = 0.1f; });
  expect_change("seed", [](auto* o) { o->seed = 2; });
}

TEST(RandomModelEffectTest, SameOptionsGiveSameBytes) {
  TempFolder folder;
  RandomModelOptions options;
  options.matrix_type = GGML_TYPE_Q4_K;
  WriteRandomModel(folder.File("a"), options);
  WriteRandomModel(folder.File("b"), options);
  std::string a = ReadFile(folder.File("a"));
  EXPECT_GT(a.size(), 100'000u);
  EXPECT_TRUE(a == ReadFile(folder.File("b")));
}

TEST(RequantizeModelTest, FinerTypesComeNearerToTheSource) {
  TempFolder folder;
  WriteRandomModel(folder.File("f32"), {});
  std::vector<float> exact =
      LlamaOracle::Open(folder.File("f32"), {})->Logits(CountUp(40));
  auto distance = [&](ggml_type type) {
    RequantizeModel(folder.File("f32"), folder.File("other"), type);
    return MeanAbsoluteDifference(
        exact,
        LlamaOracle::Open(folder.File("other"), {})->Logits(CountUp(40)));
  };
  EXPECT_EQ(distance(GGML_TYPE_F32), 0.0);
  double f16 = distance(GGML_TYPE_F16);
  double q8_0 = distance(GGML_TYPE_Q8_0);
  double q4_k = distance(GGML_TYPE_Q4_K);
  EXPECT_GT(f16, 0.0);
  EXPECT_LT(f16, q8_0);
  EXPECT_LT(q8_0, q4_k);
  EXPECT_LT(q4_k, 1.0);
}

TEST(QuantTypeForRowTest, FallsBackAsLlamaQuantizeDoes) {
  EXPECT_EQ(QuantTypeForRow(GGML_TYPE_Q4_K, 1536), GGML_TYPE_Q4_K);
  EXPECT_EQ(QuantTypeForRow(GGML_TYPE_Q2_K, 576), GGML_TYPE_Q4_0);
  EXPECT_EQ(QuantTypeForRow(GGML_TYPE_Q3_K, 576), GGML_TYPE_Q4_0);
  EXPECT_EQ(QuantTypeForRow(GGML_TYPE_Q4_K, 576), GGML_TYPE_Q5_0);
  EXPECT_EQ(QuantTypeForRow(GGML_TYPE_Q5_K, 576), GGML_TYPE_Q5_1);
  EXPECT_EQ(QuantTypeForRow(GGML_TYPE_Q6_K, 576), GGML_TYPE_Q8_0);
  EXPECT_EQ(QuantTypeForRow(GGML_TYPE_Q8_0, 40), GGML_TYPE_F16);
}

}  // namespace
}  // namespace lkv
