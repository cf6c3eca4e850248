// Model files for tests: small GGUFs with random weights of any supported
// shape, and re-quantised copies of an existing GGUF. Both are written with
// ggml alone, so that they judge our reader and executors independently.
//
// The files load in libllama (testing/llama_oracle.h) as well as in our code.
// Same options, same bytes. Thread rule: calls from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ggml.h"

namespace lkv {

struct RandomModelOptions {
  std::string family = "llama";  // "llama", "qwen2", "qwen3"
  uint32_t n_layers = 2;
  // libllama wants n_embd == n_heads * head_dim for qwen2.
  uint32_t n_embd = 256;
  uint32_t n_heads = 4;
  uint32_t n_kv_heads = 2;
  uint32_t head_dim = 64;
  uint32_t n_ff = 512;
  uint32_t vocab_size = 320;
  uint32_t context_tokens = 4096;
  float norm_epsilon = 1e-5f;

  // Of every 2-D tensor; where a row is no multiple of the type's block, the
  // type that llama-quantize falls back to (QuantTypeForRow).
  ggml_type matrix_type = GGML_TYPE_F32;
  bool tied_output = false;
  bool qkv_bias = false;  // qwen2 models have it
  bool qk_norm = false;   // qwen3 models must have it

  float rope_frequency_base = 10000.0f;
  std::string rope_scaling;  // "": none; "linear", "yarn"
  float rope_factor = 1.0f;
  uint32_t rope_original_context = 0;  // 0: not written
  // llama3's divisors of the frequencies, [head_dim / 2]; empty: not written.
  std::vector<float> rope_frequency_factors;

  uint64_t seed = 1;
};

// Defaults of a family: biases for qwen2; query and key norms and a head_dim
// that differs from n_embd / n_heads for qwen3.
RandomModelOptions RandomModelOf(const std::string& family);

// Writes the model; stops the test process when the disk refuses. Matrices are
// scaled so that activations and logits stay near unit variance.
void WriteRandomModel(const std::string& path,
                      const RandomModelOptions& options);

// `type`, or what llama-quantize puts in its place for rows of n_columns.
ggml_type QuantTypeForRow(ggml_type type, uint64_t n_columns);

// Copies a GGUF with every 2-D tensor re-quantised to `type`; metadata and
// tokenizer stay, except general.file_type, which would no longer be true.
// Requires a type that quantises without an importance matrix.
void RequantizeModel(const std::string& in_path, const std::string& out_path,
                     ggml_type type);

}  // namespace lkv
