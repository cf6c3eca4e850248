// LlamaOracle: the whole of libllama as the truth about a model's logits.
//
// Thread rule: thread-compatible. Cost: about that of llama.cpp itself.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lkv {

struct LlamaOracleOptions {
  enum class Kv { kF32, kF16 };
  enum class FlashAttention { kOff, kOn };
  // Repacked weights run other kernels; off for results nearest to plain f32.
  enum class Repack { kOff, kOn };

  Kv kv = Kv::kF32;
  FlashAttention flash_attention = FlashAttention::kOff;
  Repack repack = Repack::kOff;
  uint32_t n_threads = 2;
  uint32_t context_tokens = 2048;  // longest text of one Logits() call
};

class LlamaOracle {
 public:
  // nullptr when libllama refuses the file.
  static std::unique_ptr<LlamaOracle> Open(const std::string& path,
                                           const LlamaOracleOptions& options);
  ~LlamaOracle();

  // Runs the tokens from an empty cache: logits of all positions,
  // [n_tokens, vocab_size]. Requires tokens.size() <= context_tokens.
  std::vector<float> Logits(std::span<const int32_t> tokens);

  uint32_t vocab_size() const;

 private:
  struct State;
  explicit LlamaOracle(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lkv
