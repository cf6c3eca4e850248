// Engine: a loaded model with its cache, and the loop that turns a request
// into tokens. `wiring.cc` names the concrete executor and cache.
//
// Thread rule: one caller; the engine's own thread team works inside the calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"
#include "model/executor.h"
#include "text/sampler.h"
#include "text/tokenizer.h"

namespace lkv {

enum class ActivationPrecision {
  kAuto,  // 16 bit while decoding, 8 bit in prefill
  kHigh,  // 16 bit everywhere
};

struct EngineOptions {
  std::string model_path;
  uint32_t n_threads = 0;  // 0: the cores this process may use
  ActivationPrecision activations = ActivationPrecision::kAuto;
  // Longest sequence; 0: what each request needs, up to the trained length.
  uint32_t ctx_tokens = 0;
  bool allow_beyond_trained = false;
};

struct StepTimes {
  std::vector<float> step_us;  // wall time of every decode step
  double prefill_s = 0;
  double policy_us = 0;  // part of the decode steps spent in BeginStep
                         // and EndStep
  double decode_us = 0;  // all decode steps
};

// One running context: prompt in, logits out. The level at which evaluation
// and benchmarks drive the model.
class Sequence {
 public:
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Runs the tokens through the model in chunks and leaves the logits of the
  // last one. `progress` (may be empty) is called after every chunk with the
  // tokens done. Returns kCancelled when `cancelled` says so.
  Status Prefill(std::span<const int32_t> tokens,
                 const std::function<void(uint32_t)>& progress,
                 const std::function<bool()>& cancelled);
  // Runs one token; the logits of it are in logits() afterwards.
  Status Decode(int32_t token);
  // [vocab_size], of the newest token.
  std::span<const float> logits() const;
  uint32_t n_tokens() const;
  SequenceStats stats() const;
  const StepTimes& times() const;
  std::vector<uint32_t> ResidentPositions(uint32_t layer,
                                          uint32_t kv_head) const;

 private:
  friend class Engine;
  struct State;
  explicit Sequence(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

enum class StopReason { kLength, kEndOfText, kCancelled };

struct Request {
  std::vector<int32_t> prompt;
  std::vector<PositionRange> pinned;
  uint32_t max_new_tokens = 256;
  bool ignore_eos = false;
  CacheOptions cache;
  SamplerOptions sampler;
};

struct Generation {
  std::vector<int32_t> tokens;  // generated, without the end token
  std::string text;
  StopReason stop_reason = StopReason::kLength;
  SequenceStats kv;
  StepTimes times;
};

class Engine {
 public:
  // Loads the model. Says before loading when the weights and the working
  // memory do not fit the machine (kOutOfMemory).
  static Result<std::unique_ptr<Engine>> Open(const EngineOptions& options);
  ~Engine();

  const Tokenizer& tokenizer() const;
  const Architecture& architecture() const;
  uint64_t weight_bytes() const;
  uint32_t n_threads() const;
  std::string_view kernels() const;  // "avx512", ...

  // Admits a sequence: checks length against the context and budget against
  // its floor.
  Result<std::unique_ptr<Sequence>> Start(const SequenceOptions& options);

  // Prompt to text. `on_text` gets whole UTF-8 characters as they come and
  // returns false to stop; `cancelled` is asked once per layer in prefill and
  // once per token.
  Result<Generation> Generate(
      const Request& request,
      const std::function<bool(std::string_view)>& on_text,
      const std::function<void(uint32_t)>& progress,
      const std::function<bool()>& cancelled);

  // Watches the attention of every sequence; nullptr = none.
  void SetObserver(AttentionObserver* observer);

  struct State;  // wiring.cc

 private:
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lkv
