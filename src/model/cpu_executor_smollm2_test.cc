// The cpu executor against the reference on a real model, re-quantised to each
// weight type, on prose and code; libllama's own distance from the reference
// on the same tokens is the yardstick.
//
// By default 128 tokens of each text, the best kernel set and the types that
// people use most. LKV_LONG_TESTS=1 runs 1,000 tokens, every kernel set and
// every type (half an hour); rows of a type whose blocks do not fit SmolLM2's
// 576 columns are of the type that llama-quantize puts in its place.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/dense_kv_cache.h"
#include "gguf/gguf_file.h"
#include "kernels/kernel_table.h"
#include "model/cpu_executor.h"
#include "model/oracle_comparison.h"
#include "model/reference_executor.h"
#include "testing/llama_oracle.h"
#include "testing/random_model.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

bool RunsLong() { return std::getenv("LKV_LONG_TESTS") != nullptr; }

constexpr uint32_t kChunkTokens = 512;

std::vector<float> CpuLogits(const GgufFile& file, const char* kernels,
                             ActivationPrecision activations,
                             std::span<const int32_t> tokens,
                             uint32_t chunk_tokens) {
  auto architecture = ReadArchitecture(file);
  CHECK(architecture.ok());
  auto weights = LoadWeights(file, *architecture, {});
  CHECK(weights.ok());
  ThreadTeam team(2);
  CpuExecutorOptions options;
  options.kernels = SelectKernels(kernels);
  options.team = &team;
  options.activations = activations;
  options.max_step_tokens = kChunkTokens;
  auto executor =
      MakeCpuExecutor(*architecture, std::move(weights).value(), options);
  DenseKvCache cache(architecture->kv_shape());
  return RunTokens(*executor, cache, tokens, chunk_tokens);
}

void Print(const std::string& who, const LogitDistance& distance) {
  std::printf("  %-16s KL %.2e, top-1 %.4f, error %.2e\n", who.c_str(),
              distance.mean_kl, distance.top1_agreement, distance.rms_of_rms);
}

void ExpectNearReference(const std::string& model_path,
                         const std::string& text_path) {
  const auto tokens =
      TokensOfFile(model_path, text_path, RunsLong() ? 1000 : 128);
  auto file = GgufFile::Open(model_path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::vector<float> truth;
  size_t vocab_size = 0;
  {
    auto reference = MakeReferenceExecutor(**file);
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    vocab_size = (*reference)->architecture().vocab_size;
    DenseKvCache cache((*reference)->architecture().kv_shape());
    truth = RunTokens(**reference, cache, tokens, kChunkTokens);
  }
  auto oracle = LlamaOracle::Open(model_path, {});
  ASSERT_NE(oracle, nullptr);
  const auto libllama =
      MeasureDistance(truth, oracle->Logits(tokens), vocab_size);
  oracle.reset();
  std::printf("%s\n", text_path.c_str());
  Print("libllama", libllama);

  for (const char* const* kernels = AvailableKernels(); *kernels != nullptr;
       ++kernels) {
    SCOPED_TRACE(*kernels);
    const auto measure = [&](const char* what, ActivationPrecision activations,
                             uint32_t chunk_tokens) {
      const LogitDistance distance = MeasureDistance(
          truth, CpuLogits(**file, *kernels, activations, tokens, chunk_tokens),
          vocab_size);
      Print(std::string(*kernels) + " " + what, distance);
      return distance;
    };
    // Where libllama computes in f32, we still hold weights as F16: 1e-6.
    EXPECT_LE(
        measure("8-bit", ActivationPrecision::kAuto, kChunkTokens).mean_kl,
        std::max(1.2 * libllama.mean_kl, 1e-5));
    EXPECT_LE(measure("high", ActivationPrecision::kHigh, kChunkTokens).mean_kl,
              1e-3);
    // A step of one token uses high activations without being asked.
    EXPECT_LE(measure("decode", ActivationPrecision::kAuto, 1).mean_kl, 1e-3);
    if (!RunsLong()) break;
  }
}

struct Case {
  const char* name;
  std::optional<ggml_type> type;  // empty: the file as it is
  bool in_short_run;
};

class CpuSmolLm2Test : public testing::TestWithParam<Case> {};

TEST_P(CpuSmolLm2Test, IsAsNearToTheReferenceAsLibllama) {
  if (!GetParam().in_short_run && !RunsLong()) {
    GTEST_SKIP() << "only with LKV_LONG_TESTS=1";
  }
  const TempFolder folder;
  std::string path = TestModelPath();
  if (GetParam().type) {
    path = folder.File("model.gguf");
    RequantizeModel(TestModelPath(), path, *GetParam().type);
  }
  ExpectNearReference(path, "/usr/share/common-licenses/GPL-3");
  ExpectNearReference(path, LKV_LLAMA_CPP_DIR "/src/llama-graph.cpp");
}

INSTANTIATE_TEST_SUITE_P(
    CpuExecutor, CpuSmolLm2Test,
    testing::Values(
        Case{"as_it_is", {}, true}, Case{"Q4_0", GGML_TYPE_Q4_0, false},
        Case{"Q4_1", GGML_TYPE_Q4_1, false},
        Case{"Q5_0", GGML_TYPE_Q5_0, false}, Case{"Q5_1", GGML_TYPE_Q5_1, true},
        Case{"Q8_0", GGML_TYPE_Q8_0, true}, Case{"Q2_K", GGML_TYPE_Q2_K, false},
        Case{"Q3_K", GGML_TYPE_Q3_K, false}, Case{"Q4_K", GGML_TYPE_Q4_K, true},
        Case{"Q5_K", GGML_TYPE_Q5_K, false},
        Case{"Q6_K", GGML_TYPE_Q6_K, false},
        Case{"IQ4_NL", GGML_TYPE_IQ4_NL, false},
        Case{"F16", GGML_TYPE_F16, false}, Case{"BF16", GGML_TYPE_BF16, false},
        Case{"F32", GGML_TYPE_F32, false}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lkv
