// The reference executor against libllama, both in f32 over an f32 cache, on
// random models of every shape that we claim to support.
#include "model/reference_executor.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cache/dense_kv_cache.h"
#include "gguf/gguf_file.h"
#include "testing/llama_oracle.h"
#include "testing/oracle_comparison.h"
#include "testing/random_model.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

constexpr size_t kTestTokens = 64;

std::unique_ptr<Executor> OpenReference(const std::string& path) {
  auto file = GgufFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  auto executor = MakeReferenceExecutor(**file);
  EXPECT_TRUE(executor.ok()) << executor.status().message();
  return std::move(executor).value();
}

// Largest difference to libllama's logits, in units of their RMS.
double DistanceToLibllama(const RandomModelOptions& options) {
  TempFolder folder;
  const std::string path = folder.File("model.gguf");
  WriteRandomModel(path, options);
  const auto tokens = RandomTokens(kTestTokens, options.vocab_size);

  auto reference = OpenReference(path);
  DenseKvCache cache(reference->architecture().kv_shape());
  const auto actual = RunTokens(*reference, cache, tokens, 25);

  auto oracle =
      LlamaOracle::Open(path, {.n_threads = 1, .context_tokens = 256});
  EXPECT_NE(oracle, nullptr);
  return MeasureDistance(oracle->Logits(tokens), actual, options.vocab_size)
      .largest_of_rms;
}

struct Variant {
  std::string name;
  std::function<void(RandomModelOptions*)> change;
};

std::vector<Variant> Variants() {
  std::vector<Variant> variants = {
      {"plain", [](RandomModelOptions*) {}},
      {"tied", [](auto* o) { o->tied_output = true; }},
      {"rope_base", [](auto* o) { o->rope_frequency_base = 1e6f; }},
      {"rope_linear",
       [](auto* o) {
         o->rope_scaling = "linear";
         o->rope_factor = 4;
       }},
      {"rope_yarn",
       [](auto* o) {
         o->rope_scaling = "yarn";
         o->rope_factor = 4;
         o->rope_original_context = 1024;
       }},
      {"odd_widths",
       [](auto* o) {
         o->n_ff = 328;
         o->vocab_size = 333;
       }},
  };
  for (uint32_t head_dim : {64u, 80u, 96u, 128u, 256u}) {
    variants.push_back(
        {"head_dim_" + std::to_string(head_dim), [head_dim](auto* o) {
           o->head_dim = head_dim;
           o->n_embd = o->n_heads * head_dim;
         }});
  }
  for (uint32_t group = 1; group <= 8; ++group) {
    variants.push_back({"group_" + std::to_string(group), [group](auto* o) {
                          o->head_dim = 32;
                          o->n_kv_heads = 2;
                          o->n_heads = 2 * group;
                          o->n_embd = o->n_heads * o->head_dim;
                        }});
  }
  return variants;
}

class ReferenceExecutorTest : public testing::TestWithParam<std::string> {};

TEST_P(ReferenceExecutorTest, MatchesLibllama) {
  for (const Variant& variant : Variants()) {
    RandomModelOptions options = RandomModelOf(GetParam());
    options.n_ff = 256;
    options.n_embd = options.n_heads * options.head_dim;
    variant.change(&options);
    EXPECT_LE(DistanceToLibllama(options), 1e-3) << variant.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ReferenceExecutorTest,
                         testing::Values("llama", "qwen2", "qwen3"),
                         [](const auto& info) { return info.param; });

TEST(ReferenceExecutorTest, Llama3FactorsMatchLibllama) {
  RandomModelOptions options = RandomModelOf("llama");
  for (uint32_t i = 0; i < options.head_dim / 2; ++i) {
    options.rope_frequency_factors.push_back(i < 8 ? 1.0f : 1.0f + i * 0.2f);
  }
  EXPECT_LE(DistanceToLibllama(options), 1e-3);
}

TEST(ReferenceExecutorTest, HeadsWiderThanTheStreamMatchLibllama) {
  RandomModelOptions options = RandomModelOf("qwen3");
  options.n_embd = 160;
  EXPECT_LE(DistanceToLibllama(options), 1e-3);
}

TEST(ReferenceExecutorTest, BiasesOfALlamaMatchLibllama) {
  RandomModelOptions options = RandomModelOf("llama");
  options.qkv_bias = true;
  EXPECT_LE(DistanceToLibllama(options), 1e-3);
}

TEST(ReferenceExecutorTest, QuantisedWeightsMatchTheirDequantisedValues) {
  TempFolder folder;
  RandomModelOptions options = RandomModelOf("llama");
  options.matrix_type = GGML_TYPE_Q4_K;
  WriteRandomModel(folder.File("q4_k.gguf"), options);
  RequantizeModel(folder.File("q4_k.gguf"), folder.File("f32.gguf"),
                  GGML_TYPE_F32);
  const auto tokens = RandomTokens(32, options.vocab_size);
  std::vector<float> logits[2];
  for (int i = 0; i < 2; ++i) {
    auto executor =
        OpenReference(folder.File(i == 0 ? "q4_k.gguf" : "f32.gguf"));
    DenseKvCache cache(executor->architecture().kv_shape());
    logits[i] = RunTokens(*executor, cache, tokens, 32);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST(ReferenceExecutorTest, ChunkSizeDoesNotMatter) {
  TempFolder folder;
  const RandomModelOptions options = RandomModelOf("llama");
  WriteRandomModel(folder.File("model.gguf"), options);
  auto executor = OpenReference(folder.File("model.gguf"));
  DenseKvCache cache(executor->architecture().kv_shape());
  const auto tokens = RandomTokens(24, options.vocab_size);
  EXPECT_EQ(RunTokens(*executor, cache, tokens, 24),
            RunTokens(*executor, cache, tokens, 1));
}

TEST(ReferenceExecutorTest, CancelledStepSaysSo) {
  TempFolder folder;
  const RandomModelOptions options = RandomModelOf("llama");
  WriteRandomModel(folder.File("model.gguf"), options);
  auto executor = OpenReference(folder.File("model.gguf"));
  DenseKvCache cache(executor->architecture().kv_shape());
  auto sequence = cache.AddSequence({});
  ASSERT_TRUE(sequence.ok());
  const int32_t token = 1;
  const uint32_t position = 0;
  const StepEntry entry{*sequence, 1};
  EXPECT_EQ(executor
                ->Step({{&token, 1}, {&entry, 1}, {&position, 1}, {}}, cache,
                       {}, [] { return true; })
                .code(),
            StatusCode::kCancelled);
}

}  // namespace
}  // namespace lkv
