// The cpu executor against the reference on the same file, for every kernel
// set and weight type, on small random models; libllama's own distance from
// the reference on the same tokens is the yardstick.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cache/dense_kv_cache.h"
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

constexpr size_t kTestTokens = 40;

// A model file opened by all three: reference, libllama and cpu.
class ComparedModel {
 public:
  ComparedModel(const RandomModelOptions& options, size_t n_tokens)
      : tokens_(RandomTokens(n_tokens, options.vocab_size)),
        vocab_size_(options.vocab_size) {
    const std::string path = folder_.File("model.gguf");
    WriteRandomModel(path, options);
    auto file = GgufFile::Open(path);
    CHECK(file.ok());
    file_ = std::move(file).value();
    auto reference = MakeReferenceExecutor(*file_);
    CHECK(reference.ok());
    truth_ = Run(**reference, kTestTokens);
    auto oracle =
        LlamaOracle::Open(path, {.n_threads = 1, .context_tokens = 256});
    CHECK(oracle != nullptr);
    libllama_ = MeasureDistance(truth_, oracle->Logits(tokens_), vocab_size_);
  }

  const LogitDistance& libllama() const { return libllama_; }

  // Distance of the cpu executor, run in chunks of chunk_tokens.
  LogitDistance Cpu(const char* kernels, ActivationPrecision activations,
                    uint32_t chunk_tokens) {
    return MeasureDistance(
        truth_, CpuLogits(kernels, activations, chunk_tokens, /*n_threads=*/1),
        vocab_size_);
  }

  std::vector<float> CpuLogits(const char* kernels,
                               ActivationPrecision activations,
                               uint32_t chunk_tokens, uint32_t n_threads) {
    auto architecture = ReadArchitecture(*file_);
    CHECK(architecture.ok());
    ThreadTeam team(n_threads);
    auto weights = LoadWeights(*file_, *architecture, team);
    CHECK(weights.ok());
    CpuExecutorOptions options;
    options.kernels = SelectKernels(kernels);
    options.team = &team;
    options.activations = activations;
    options.max_step_tokens = kTestTokens;
    auto executor =
        MakeCpuExecutor(*architecture, std::move(weights).value(), options);
    return Run(*executor, chunk_tokens);
  }

 private:
  std::vector<float> Run(Executor& executor, uint32_t chunk_tokens) {
    DenseKvCache cache(executor.architecture().kv_shape());
    return RunTokens(executor, cache, tokens_, chunk_tokens);
  }

  TempFolder folder_;
  std::vector<int32_t> tokens_;
  size_t vocab_size_;
  std::unique_ptr<GgufFile> file_;
  std::vector<float> truth_;
  LogitDistance libllama_;
};

std::vector<std::string> KernelSets() {
  std::vector<std::string> names;
  for (const char* const* name = AvailableKernels(); *name != nullptr; ++name) {
    names.push_back(*name);
  }
  return names;
}

// Widths that end within a tile: of rows, of columns, and of the pair of row
// tiles that make one column tile of down. (Those of quantised types are whole
// blocks of 32.)
TEST(CpuExecutorTest, WidthsThatEndWithinATileAreExact) {
  struct Widths {
    ggml_type type;
    uint32_t n_ff;
  };
  for (const auto& [type, n_ff] :
       {Widths{GGML_TYPE_Q4_1, 288}, Widths{GGML_TYPE_Q8_0, 352},
        Widths{GGML_TYPE_F16, 328}, Widths{GGML_TYPE_F16, 272}}) {
    RandomModelOptions options = RandomModelOf("llama");
    options.matrix_type = type;
    options.n_ff = n_ff;
    options.vocab_size = 333;
    ComparedModel model(options, kTestTokens);
    for (const std::string& kernels : KernelSets()) {
      SCOPED_TRACE(kernels + " " + ggml_type_name(type) + " " +
                   std::to_string(n_ff));
      for (uint32_t chunk_tokens :
           {uint32_t{1}, uint32_t{7}, uint32_t{kTestTokens}}) {
        const LogitDistance distance = model.Cpu(
            kernels.c_str(), ActivationPrecision::kHigh, chunk_tokens);
        EXPECT_LE(distance.mean_kl, 1e-5);
      }
    }
  }
}

class WeightTypeTest : public testing::TestWithParam<ggml_type> {};

TEST_P(WeightTypeTest, CpuIsAsNearToTheReferenceAsLibllama) {
  RandomModelOptions options = RandomModelOf("llama");
  options.matrix_type = GetParam();
  ComparedModel model(options, kTestTokens);
  std::printf("%-7s libllama: KL %.2e, error %.2e\n",
              ggml_type_name(GetParam()), model.libllama().mean_kl,
              model.libllama().rms_of_rms);
  for (const std::string& kernels : KernelSets()) {
    const auto fast =
        model.Cpu(kernels.c_str(), ActivationPrecision::kAuto, kTestTokens);
    const auto high =
        model.Cpu(kernels.c_str(), ActivationPrecision::kHigh, kTestTokens);
    const auto decode =
        model.Cpu(kernels.c_str(), ActivationPrecision::kAuto, 1);
    std::printf(
        "  %-7s 8-bit: KL %.2e, error %.2e; high: KL %.2e, error %.2e; "
        "decode: KL %.2e\n",
        kernels.c_str(), fast.mean_kl, fast.rms_of_rms, high.mean_kl,
        high.rms_of_rms, decode.mean_kl);
    SCOPED_TRACE(kernels);
    EXPECT_LE(fast.mean_kl, std::max(1.2 * model.libllama().mean_kl, 1e-5));
    EXPECT_LE(high.mean_kl, 1e-3);
    EXPECT_LE(decode.mean_kl, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(
    CpuExecutor, WeightTypeTest,
    testing::Values(GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,
                    GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_Q2_K,
                    GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
                    GGML_TYPE_Q6_K, GGML_TYPE_IQ4_NL, GGML_TYPE_F16,
                    GGML_TYPE_BF16, GGML_TYPE_F32),
    [](const auto& info) { return std::string(ggml_type_name(info.param)); });

}  // namespace
}  // namespace lkv
