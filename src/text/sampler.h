// Sampler: draws the next token from logits, by libllama's sampler chain and
// GBNF grammar. Deterministic for a seed. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lookaheadkv/status.h"
#include "text/tokenizer.h"

namespace lkv {

struct SamplerOptions {
  float temperature = 0.0f;     // 0: the most likely token
  int32_t top_k = 40;           // 0: off
  float top_p = 0.95f;          // 1: off
  float min_p = 0.05f;          // 0: off
  float repeat_penalty = 1.0f;  // 1: off; over the last 64 tokens
  uint32_t seed = 0;
  std::string grammar;                   // GBNF text; empty: none
  std::string grammar_name = "grammar";  // in messages: its file
};

// kInvalidArgument unless every number is in its range (NaN is in none). Says
// nothing about the grammar.
Status CheckSamplerNumbers(const SamplerOptions& options);

class Sampler {
 public:
  // kInvalidArgument: an option out of range or a grammar that does not parse.
  static Result<std::unique_ptr<Sampler>> Create(const Tokenizer& tokenizer,
                                                 const SamplerOptions& options);
  ~Sampler();

  // Draws one token; tells the chain and the grammar that it was taken.
  int32_t Sample(std::span<const float> logits);
  // Tells the chain about a token that was not drawn here (the prompt).
  void Accept(int32_t token);

 private:
  struct State;
  explicit Sampler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lkv
