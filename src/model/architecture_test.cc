#include "model/architecture.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ggml.h"
#include "gguf.h"
#include "testing/random_model.h"
#include "testing/test_paths.h"

namespace lkv {
namespace {

using GgufContext = std::unique_ptr<gguf_context, decltype(&gguf_free)>;
using GgmlContext = std::unique_ptr<ggml_context, decltype(&ggml_free)>;

// The smallest model of a family that we accept.
RandomModelOptions SmallModel(const std::string& family) {
  RandomModelOptions options = RandomModelOf(family);
  options.n_embd = 64;
  options.n_heads = 4;
  options.n_kv_heads = 2;
  options.head_dim = 16;
  options.n_ff = 32;
  options.vocab_size = 40;
  return options;
}

// What to change in a model file before it is read.
struct Edit {
  std::function<void(gguf_context*)> keys;
  std::string drop_tensor;
  // Adds tensors, allocated in the given context.
  std::function<ggml_tensor*(ggml_context*)> add_tensor;
};

class ArchitectureTest : public testing::Test {
 protected:
  Result<Architecture> Read(const RandomModelOptions& options,
                            const Edit& edit = {}) {
    const std::string original = folder_.File("original.gguf");
    const std::string edited = folder_.File("edited.gguf");
    WriteRandomModel(original, options);
    WriteEdited(original, edited, edit);
    auto file = GgufFile::Open(edited);
    if (!file.ok()) return file.status();
    return ReadArchitecture(**file);
  }

  // Expects a refusal whose message names the file and contains `part`.
  void ExpectRefused(const RandomModelOptions& options, const Edit& edit,
                     const std::string& part) {
    const auto result = Read(options, edit);
    ASSERT_FALSE(result.ok()) << part;
    EXPECT_EQ(result.status().code(), StatusCode::kCorrupt);
    const std::string message(result.status().message());
    EXPECT_NE(message.find("edited.gguf: "), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    const std::string remedy = message.substr(message.rfind("; ") + 2);
    EXPECT_TRUE(remedy == "convert the model again" ||
                remedy == "choose another model" ||
                remedy == "fetch the file again")
        << message;
  }

 private:
  static void WriteEdited(const std::string& in, const std::string& out,
                          const Edit& edit) {
    ggml_context* loaded = nullptr;
    const GgufContext source(
        gguf_init_from_file(in.c_str(), {.no_alloc = false, .ctx = &loaded}),
        &gguf_free);
    ASSERT_NE(source, nullptr);
    const GgmlContext own_loaded(loaded, &ggml_free);
    const GgmlContext extra(
        ggml_init(
            {.mem_size = 1 << 20, .mem_buffer = nullptr, .no_alloc = false}),
        &ggml_free);
    const GgufContext meta(gguf_init_empty(), &gguf_free);
    gguf_set_kv(meta.get(), source.get());
    if (edit.keys) edit.keys(meta.get());
    for (int64_t i = 0; i < gguf_get_n_tensors(source.get()); ++i) {
      const char* name = gguf_get_tensor_name(source.get(), i);
      if (name == edit.drop_tensor) continue;
      gguf_add_tensor(meta.get(), ggml_get_tensor(loaded, name));
    }
    if (edit.add_tensor) {
      gguf_add_tensor(meta.get(), edit.add_tensor(extra.get()));
    }
    ASSERT_TRUE(gguf_write_to_file(meta.get(), out.c_str(), false));
  }

  TempFolder folder_;
};

Edit SetUint(const char* key, uint64_t value) {
  return {
      [=](gguf_context* meta) { gguf_set_val_u64(meta, key, value); }, "", {}};
}
Edit SetFloat(const char* key, float value) {
  return {
      [=](gguf_context* meta) { gguf_set_val_f32(meta, key, value); }, "", {}};
}
Edit SetText(const char* key, const char* value) {
  return {
      [=](gguf_context* meta) { gguf_set_val_str(meta, key, value); }, "", {}};
}
Edit RemoveKey(const char* key) {
  return {[=](gguf_context* meta) { gguf_remove_key(meta, key); }, "", {}};
}
Edit DropTensor(const char* name) { return {{}, name, {}}; }
Edit ReplaceTensor(const char* name, ggml_type type,
                   std::vector<int64_t> shape) {
  return {{}, name, [=](ggml_context* context) {
            ggml_tensor* tensor = ggml_new_tensor(
                context, type, static_cast<int>(shape.size()), shape.data());
            ggml_set_name(tensor, name);
            return tensor;
          }};
}

TEST_F(ArchitectureTest, ReadsEachFamily) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    SCOPED_TRACE(family);
    RandomModelOptions options = SmallModel(family);
    options.n_layers = 3;
    options.norm_epsilon = 1e-6f;
    options.rope_frequency_base = 5e5f;
    const auto result = Read(options);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->family, family);
    EXPECT_EQ(result->name, "random");
    EXPECT_EQ(result->n_layers, 3u);
    EXPECT_EQ(result->n_embd, 64u);
    EXPECT_EQ(result->n_ff, 32u);
    EXPECT_EQ(result->n_heads, 4u);
    EXPECT_EQ(result->n_kv_heads, 2u);
    EXPECT_EQ(result->head_dim, 16u);
    EXPECT_EQ(result->vocab_size, 40u);
    EXPECT_EQ(result->trained_context_tokens, options.context_tokens);
    EXPECT_EQ(result->norm_epsilon, 1e-6f);
    EXPECT_EQ(result->qkv_bias, result->family == "qwen2");
    EXPECT_EQ(result->qk_norm, result->family == "qwen3");
    EXPECT_FALSE(result->tied_output);
    EXPECT_EQ(result->rope.order, result->family == "llama" ? RopeOrder::kNormal
                                                            : RopeOrder::kNeox);
    EXPECT_EQ(result->rope.n_rotated, 16u);
    EXPECT_EQ(result->rope.frequency_base, 5e5f);
    EXPECT_EQ(result->kv_shape().group, 2u);
  }
}

TEST_F(ArchitectureTest, MissingOutputMeansTied) {
  RandomModelOptions options = SmallModel("llama");
  options.tied_output = true;
  EXPECT_TRUE(Read(options)->tied_output);
}

TEST_F(ArchitectureTest, DefaultsFollowTheOtherKeys) {
  RandomModelOptions options = SmallModel("llama");
  options.n_kv_heads = options.n_heads;
  Edit edit;
  edit.keys = [](gguf_context* meta) {
    for (const char* key :
         {"llama.attention.head_count_kv", "llama.attention.key_length",
          "llama.attention.value_length", "llama.rope.dimension_count",
          "llama.rope.freq_base"}) {
      gguf_remove_key(meta, key);
    }
  };
  const auto result = Read(options, edit);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->n_kv_heads, 4u);
  EXPECT_EQ(result->head_dim, 16u);
  EXPECT_EQ(result->rope.n_rotated, 16u);
  EXPECT_EQ(result->rope.frequency_base, 10000.0f);
}

TEST_F(ArchitectureTest, ReadsRopeScaling) {
  RandomModelOptions options = SmallModel("llama");
  options.rope_scaling = "yarn";
  options.rope_factor = 4;
  options.rope_original_context = 1024;
  EXPECT_EQ(Read(options)->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(Read(options)->rope.factor, 4.0f);
  EXPECT_EQ(Read(options)->rope.original_context, 1024u);
  EXPECT_EQ(Read(options, SetFloat("llama.rope.scaling.attn_factor", 0.5f))
                ->rope.attention_factor,
            0.5f);
  EXPECT_EQ(Read(options, SetFloat("llama.rope.scaling.yarn_beta_fast", 16))
                ->rope.yarn_beta_fast,
            16.0f);

  options = SmallModel("llama");
  const auto old = Read(options, SetFloat("llama.rope.scale_linear", 2));
  ASSERT_TRUE(old.ok()) << old.status().message();
  EXPECT_EQ(old->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(old->rope.factor, 2.0f);
  EXPECT_EQ(
      Read(options, SetText("llama.rope.scaling.type", "none"))->rope.scaling,
      RopeScaling::kNone);

  options.rope_frequency_factors = {1, 1, 2, 2, 3, 3, 4, 4};
  EXPECT_EQ(Read(options)->rope.frequency_factors,
            options.rope_frequency_factors);
}

TEST_F(ArchitectureTest, UnsetMarksOfWritersAreNoFeatures) {
  Edit edit;
  edit.keys = [](gguf_context* meta) {
    gguf_set_val_u32(meta, "llama.expert_count", 0);
    gguf_set_val_f32(meta, "llama.logit_scale", 0);
    gguf_set_val_f32(meta, "llama.rope.scaling.factor", 0);
    gguf_set_val_f32(meta, "llama.rope.scaling.yarn_ext_factor", -1);
    gguf_set_val_u32(meta, "llama.attention.sliding_window", 0);
  };
  const auto result = Read(SmallModel("llama"), edit);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->rope.factor, 1.0f);
}

TEST_F(ArchitectureTest, UnknownFamilyNamesTheKnownOnes) {
  ExpectRefused(
      SmallModel("llama"), SetText("general.architecture", "gemma2"),
      "key general.architecture is 'gemma2', but only llama, qwen2 and "
      "qwen3 are supported");
  ExpectRefused(SmallModel("llama"), RemoveKey("general.architecture"),
                "key general.architecture is ''");
}

TEST_F(ArchitectureTest, RefusesKeysThatAreMissingOrOutOfRange) {
  const RandomModelOptions options = SmallModel("llama");
  for (const char* key :
       {"llama.block_count", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count",
        "llama.context_length", "llama.vocab_size"}) {
    ExpectRefused(options, RemoveKey(key), key);
    ExpectRefused(options, SetUint(key, 0), key);
    ExpectRefused(options, SetUint(key, uint64_t{1} << 60), key);
    ExpectRefused(options, SetText(key, "many"), key);
  }
  for (const char* key :
       {"llama.attention.head_count_kv", "llama.attention.key_length",
        "llama.attention.value_length", "llama.rope.dimension_count"}) {
    ExpectRefused(options, SetUint(key, 0), key);
    ExpectRefused(options, SetUint(key, uint64_t{1} << 60), key);
  }
  const char* epsilon = "llama.attention.layer_norm_rms_epsilon";
  ExpectRefused(options, RemoveKey(epsilon), epsilon);
  ExpectRefused(options, SetFloat(epsilon, -1), epsilon);
  ExpectRefused(options, SetFloat("llama.rope.freq_base", 0),
                "llama.rope.freq_base");
  ExpectRefused(options, SetFloat("llama.rope.scaling.factor", -2),
                "llama.rope.scaling.factor");
  ExpectRefused(
      options,
      SetFloat("llama.rope.freq_base", std::numeric_limits<float>::infinity()),
      "llama.rope.freq_base");
}

// What a message names is what is in the file.
TEST_F(ArchitectureTest, RefusalNamesTheKeyThatIsThere) {
  const RandomModelOptions options = SmallModel("llama");
  Edit narrow = RemoveKey("llama.attention.key_length");
  narrow.keys = [](gguf_context* meta) {
    gguf_remove_key(meta, "llama.attention.key_length");
    gguf_remove_key(meta, "llama.attention.value_length");
    gguf_set_val_u32(meta, "llama.attention.head_count", 8);  // 64 / 8
  };
  ExpectRefused(options, narrow,
                "key llama.attention.head_count makes heads of 8 elements");
  ExpectRefused(options, SetFloat("llama.rope.scale_linear", -2),
                "key llama.rope.scale_linear is -2");
  ExpectRefused(options, RemoveKey("llama.attention.layer_norm_rms_epsilon"),
                "layer_norm_rms_epsilon is missing");
}

TEST_F(ArchitectureTest, RefusesVocabulariesThatContradictTheFile) {
  const RandomModelOptions options = SmallModel("llama");
  Edit tokens;
  tokens.keys = [](gguf_context* meta) {
    std::vector<const char*> names(41, "t");
    gguf_set_arr_str(meta, "tokenizer.ggml.tokens", names.data(), names.size());
  };
  ExpectRefused(options, tokens,
                "key llama.vocab_size is 40, but the vocabulary has 41 tokens");
  for (const char* key :
       {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    EXPECT_TRUE(Read(options, SetUint(key, 39)).ok()) << key;
    EXPECT_TRUE(Read(options, SetUint(key, 0xffffffff)).ok()) << key;
    ExpectRefused(
        options, SetUint(key, 40),
        std::string(key) + " is 40, but the vocabulary has 40 tokens");
  }
}

TEST_F(ArchitectureTest, RefusesHeadsThatTheKernelsDoNotKnow) {
  RandomModelOptions options = SmallModel("llama");
  options.n_heads = 18;  // groups of 9
  ExpectRefused(options, {}, "18 query heads among 2 KV heads");
  options = SmallModel("llama");
  options.n_heads = 3;
  ExpectRefused(options, {}, "3 query heads among 2 KV heads");
  options = SmallModel("llama");
  options.head_dim = 24;
  ExpectRefused(options, {}, "attention.key_length makes heads of 24 elements");
  options.head_dim = 272;
  ExpectRefused(options, {},
                "attention.key_length makes heads of 272 elements");
  options = SmallModel("llama");
  ExpectRefused(options, SetUint("llama.attention.value_length", 32),
                "value_length is 32, but only the length of the keys, 16");
  ExpectRefused(options, SetUint("llama.rope.dimension_count", 8),
                "dimension_count is 8, but only rotating whole heads, 16");
}

TEST_F(ArchitectureTest, RefusesFeaturesThatWeDoNotCompute) {
  const RandomModelOptions options = SmallModel("llama");
  ExpectRefused(options, SetUint("llama.expert_count", 8),
                "llama.expert_count");
  ExpectRefused(options, SetUint("llama.attention.sliding_window", 1024),
                "llama.attention.sliding_window");
  EXPECT_TRUE(
      Read(options, SetUint("llama.attention.sliding_window", 4096)).ok());
  for (const char* key :
       {"llama.final_logit_softcapping", "llama.attn_logit_softcapping",
        "llama.attention.clamp_kqv", "llama.attention.scale",
        "llama.logit_scale", "llama.residual_scale", "llama.embedding_scale",
        "llama.rope.scaling.alpha", "llama.rope.scaling.yarn_attn_factor"}) {
    ExpectRefused(options, SetFloat(key, 30), key);
  }
  ExpectRefused(options, SetText("llama.rope.scaling.type", "longrope"),
                "scaling.type is 'longrope', but only none, linear and yarn");
  Edit per_layer;
  per_layer.keys = [](gguf_context* meta) {
    const uint32_t heads[] = {4, 4};
    gguf_set_arr_data(meta, "llama.attention.head_count", GGUF_TYPE_UINT32,
                      heads, 2);
  };
  ExpectRefused(options, per_layer, "head_count has a value for each layer");
  Edit encoder;
  encoder.keys = [](gguf_context* meta) {
    gguf_set_val_bool(meta, "llama.attention.causal", false);
  };
  ExpectRefused(options, encoder, "only causal models");
}

TEST_F(ArchitectureTest, RefusesTensorsThatAreMissingOrOfAnotherShape) {
  const RandomModelOptions options = SmallModel("qwen3");
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight",
        "blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight",
        "blk.1.attn_output.weight", "blk.1.attn_q_norm.weight",
        "blk.1.attn_k_norm.weight", "blk.1.ffn_norm.weight",
        "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight",
        "blk.1.ffn_down.weight"}) {
    ExpectRefused(options, DropTensor(name),
                  "tensor " + std::string(name) + " is missing");
    ExpectRefused(options, ReplaceTensor(name, GGML_TYPE_F32, {96, 3}),
                  std::string(name) + " has shape [96, 3], expected");
  }
  ExpectRefused(options,
                ReplaceTensor("output.weight", GGML_TYPE_F32, {64, 41}),
                "output.weight has shape [64, 41], expected [64, 40]");
  ExpectRefused(options,
                ReplaceTensor("output_norm.weight", GGML_TYPE_F16, {64}),
                "output_norm.weight is F16, expected F32");
  RandomModelOptions biased = SmallModel("qwen2");
  ExpectRefused(biased, DropTensor("blk.1.attn_k.bias"),
                "blk.1.attn_k.bias is missing");
}

TEST_F(ArchitectureTest, RefusesTensorsThatWouldBeLeftOut) {
  for (const char* name :
       {"blk.0.attn_output.bias", "blk.0.ffn_down.bias", "output.bias",
        "blk.2.attn_q.weight", "blk.0.attn_q_norm.weight"}) {
    ExpectRefused(SmallModel("llama"), ReplaceTensor(name, GGML_TYPE_F32, {64}),
                  std::string(name) + " is no part of a llama model");
  }
}

TEST_F(ArchitectureTest, RefusesFrequencyFactorsThatAreNotPositive) {
  RandomModelOptions options = SmallModel("llama");
  options.rope_frequency_factors = std::vector<float>(8, 1.0f);
  options.rope_frequency_factors[3] = 0;
  ExpectRefused(options, {}, "rope_freqs.weight holds 0");
}

}  // namespace
}  // namespace lkv
