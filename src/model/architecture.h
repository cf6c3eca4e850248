// Architecture: a model family as data. The executors contain no family names;
// what differs between llama, qwen2 and qwen3 is a field here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "gguf/gguf_file.h"
#include "lookaheadkv/status.h"

namespace lkv {

enum class RopeScaling : uint8_t { kNone, kLinear, kYarn };

struct RopeOptions {
  RopeOrder order = RopeOrder::kNormal;
  uint32_t n_rotated = 0;  // leading elements of a head that rotate
  float frequency_base = 10000.0f;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;            // context extension
  uint32_t original_context = 0;  // YaRN: trained length before extension
  float attention_factor = 1.0f;  // multiplies cosines and sines
  float yarn_beta_fast = 32.0f;   // turns in original_context at which the
  float yarn_beta_slow = 1.0f;    // ramp begins and ends
  std::vector<float> frequency_factors = {};  // llama3: [n_rotated / 2] or none
};

struct Architecture {
  std::string family;  // "llama", "qwen2", "qwen3"
  std::string name;    // general.name, for people
  uint32_t n_layers = 0;
  uint32_t n_embd = 0;  // width of the residual stream
  uint32_t n_ff = 0;
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t vocab_size = 0;
  uint32_t trained_context_tokens = 0;
  float norm_epsilon = 1e-5f;
  bool qkv_bias = false;     // qwen2
  bool qk_norm = false;      // qwen3: RMS norm per head before RoPE
  bool tied_output = false;  // the output head is the token embedding
  RopeOptions rope;

  KvShape kv_shape() const {
    return {n_layers, n_kv_heads, n_heads / n_kv_heads, head_dim};
  }
};

// Reads and checks the architecture of a model file: after success every tensor
// that a forward pass reads exists with the shape the architecture says, and
// the file holds no tensor that we would ignore. kCorrupt names the file and
// the key or tensor that is missing, out of range or unsupported. Allocates
// nothing in proportion to what the file claims.
Result<Architecture> ReadArchitecture(const GgufFile& file);

// Name of a tensor of one layer: (3, "attn_q.weight") is
// "blk.3.attn_q.weight".
std::string LayerTensorName(uint32_t layer, std::string_view part);

}  // namespace lkv
