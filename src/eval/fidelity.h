// Fidelity: what a policy changes in the model's predictions, against the full
// cache on the same tokens.
//
// Compare runs of one executor with high activations only: with 8-bit ones
// SmolLM2-135M flips 3-4 % of its first choices at the slightest change (KL
// 4e-3 between f16 and f32 KV), which would drown the effect of a policy.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lkv {

struct Fidelity {
  double kl_mean = 0;  // KL(full || policy), nats per token
  double kl_p95 = 0;
  double kl_p99 = 0;
  // Mean over the tokens whose full-cache entropy is below the median: damage
  // to what the model is sure of, which the plain mean hides.
  double kl_mean_sure = 0;
  double top1_agreement = 1;  // share of equal first choices
  // Tokens before the first whose first choices differ; n_tokens when none
  // does.
  uint32_t first_divergence = 0;
  double top5_overlap = 1;  // mean share of common tokens among the best five
  // Perplexity on the given text over that of the full cache.
  double perplexity_ratio = 1;
  // Mean -log p of the given text by the full cache: how hard the text is.
  double full_nll = 0;
  uint32_t n_tokens = 0;
};

// Compares two streams of logits, token by token. Thread-compatible. Cost of
// Add: a few passes over the vocabulary in double (1.5 ms for 49,152 tokens).
class FidelityMeter {
 public:
  // Logits [vocab_size] before the same token; `next_token` is the token that
  // the text goes on with.
  void Add(std::span<const float> full, std::span<const float> policy,
           int32_t next_token);
  Fidelity Result() const;

 private:
  std::vector<double> kl_;       // per token
  std::vector<double> entropy_;  // per token, of the full cache
  uint64_t n_top1_equal_ = 0;
  std::optional<uint32_t> first_divergence_;
  uint64_t n_top5_common_ = 0;
  double full_log_likelihood_ = 0;
  double log_likelihood_loss_ = 0;  // sum of log p_full - log p_policy
};

}  // namespace lkv
