// The cpu executor against the reference on a real model, re-quantised to each
// weight type, on prose and code; libllama's own distance from the reference
// on the same tokens is the yardstick.
//
// By default the best kernel set and four types. LKV_LONG_TESTS=types runs
// every type on every vector set (ten minutes), LKV_LONG_TESTS=all on the
// scalar set too (half an hour); LKV_KERNELS=scalar on that alone. Matrices
// whose rows do not fit a type's blocks (SmolLM2 has rows of 576) are of the
// type that llama-quantize puts in its place.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "cache/dense_kv_cache.h"
#include "cache/paged_kv_cache.h"
#include "gguf/gguf_file.h"
#include "kernels/kernel_table.h"
#include "model/cpu_executor.h"
#include "model/reference_executor.h"
#include "testing/llama_oracle.h"
#include "testing/oracle_comparison.h"
#include "testing/random_model.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

enum class Extent { kShort, kTypes, kAll };

Extent TestExtent() {
  const char* value = std::getenv("LKV_LONG_TESTS");
  if (value == nullptr) return Extent::kShort;
  CHECK(value == std::string("types") || value == std::string("all"));
  return value == std::string("all") ? Extent::kAll : Extent::kTypes;
}

constexpr uint32_t kChunkTokens = 512;
constexpr size_t kTextTokens = 256;

using Tokens = std::vector<int32_t>;
using Logits = std::vector<float>;

std::vector<Logits> RunTexts(Executor& executor, KvCache& cache,
                             const std::vector<Tokens>& texts,
                             uint32_t chunk_tokens) {
  std::vector<Logits> logits;
  for (const Tokens& tokens : texts) {
    logits.push_back(RunTokens(executor, cache, tokens, chunk_tokens));
  }
  return logits;
}

// Mean KL over all texts (which are equally long). One text of 256 tokens has
// a few positions that decide its mean.
double PrintAndAverage(const std::string& who, const std::vector<Logits>& truth,
                       const std::vector<Logits>& logits, size_t vocab_size) {
  double kl = 0;
  std::printf("  %-16s", who.c_str());
  for (size_t i = 0; i < truth.size(); ++i) {
    const LogitDistance distance =
        MeasureDistance(truth[i], logits[i], vocab_size);
    std::printf("  KL %.2e, top-1 %.4f, error %.2e", distance.mean_kl,
                distance.top1_agreement, distance.rms_of_rms);
    kl += distance.mean_kl / truth.size();
  }
  std::printf("  mean KL %.2e\n", kl);
  return kl;
}

void ExpectNearReference(const std::string& model_path) {
  const std::vector<Tokens> texts = {
      TokensOfFile(model_path, "/usr/share/common-licenses/GPL-3", kTextTokens),
      TokensOfFile(model_path, LKV_LLAMA_CPP_DIR "/src/llama-graph.cpp",
                   kTextTokens)};
  auto file = GgufFile::Open(model_path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  auto architecture = ReadArchitecture(**file);
  ASSERT_TRUE(architecture.ok()) << architecture.status().message();
  const size_t vocab_size = architecture->vocab_size;

  std::vector<Logits> truth;
  {
    auto reference = MakeReferenceExecutor(**file);
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    DenseKvCache cache(architecture->kv_shape());
    truth = RunTexts(**reference, cache, texts, kChunkTokens);
  }
  double libllama_kl = 0;
  {
    auto oracle = LlamaOracle::Open(model_path, {});
    ASSERT_NE(oracle, nullptr);
    std::vector<Logits> logits;
    for (const Tokens& tokens : texts) {
      logits.push_back(oracle->Logits(tokens));
    }
    libllama_kl = PrintAndAverage("libllama", truth, logits, vocab_size);
  }

  ThreadTeam team(2);
  for (const char* const* kernels = AvailableKernels(); *kernels != nullptr;
       ++kernels) {
    SCOPED_TRACE(*kernels);
    const bool scalar = *kernels == std::string("scalar");
    if (scalar && TestExtent() == Extent::kTypes) continue;
    const char* only = std::getenv("LKV_KERNELS");
    if (only != nullptr && *kernels != std::string(only)) continue;
    const auto measure = [&](const char* what, ActivationPrecision activations,
                             uint32_t chunk_tokens) {
      auto weights = LoadWeights(**file, *architecture, team);
      CHECK(weights.ok());
      CpuExecutorOptions options;
      options.kernels = SelectKernels(*kernels);
      options.team = &team;
      options.activations = activations;
      options.max_step_tokens = kChunkTokens;
      auto executor =
          MakeCpuExecutor(*architecture, std::move(weights).value(), options);
      // As the engine puts them together.
      const bool high = activations == ActivationPrecision::kHigh;
      PagedKvCache cache(architecture->kv_shape(),
                         {.kernels = options.kernels,
                          .max_threads = team.n_threads(),
                          .prefill_products = high ? PrefillProducts::kF32
                                                   : PrefillProducts::kBF16});
      return PrintAndAverage(std::string(*kernels) + " " + what, truth,
                             RunTexts(*executor, cache, texts, chunk_tokens),
                             vocab_size);
    };
    // Where libllama computes in f32, we still hold weights as F16: 1e-6.
    EXPECT_LE(measure("8-bit", ActivationPrecision::kAuto, kChunkTokens),
              std::max(1.2 * libllama_kl, 1e-5));
    EXPECT_LE(measure("high", ActivationPrecision::kHigh, kChunkTokens), 1e-3);
    // A step of one token uses high activations without being asked. (Of the
    // scalar set the same bits as above, at the price of half its time.)
    if (scalar) continue;
    EXPECT_LE(measure("decode", ActivationPrecision::kAuto, 1), 1e-3);
    if (TestExtent() == Extent::kShort) break;
  }
}

struct Case {
  const char* name;
  std::optional<ggml_type> type;  // empty: the file as it is
  bool in_short_run;
};

class CpuSmolLm2Test : public testing::TestWithParam<Case> {};

TEST_P(CpuSmolLm2Test, IsAsNearToTheReferenceAsLibllama) {
  if (!GetParam().in_short_run && TestExtent() == Extent::kShort) {
    GTEST_SKIP() << "only with LKV_LONG_TESTS=types";
  }
  const TempFolder folder;
  std::string path = TestModelPath();
  if (GetParam().type) {
    path = folder.File("model.gguf");
    RequantizeModel(TestModelPath(), path, *GetParam().type);
  }
  ExpectNearReference(path);
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
