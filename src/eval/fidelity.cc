#include "eval/fidelity.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "eval/log_sum_exp.h"
#include "eval/percentile.h"

namespace lkv {
namespace {

constexpr size_t kTop = 5;

// Tokens with the largest logits, best first; ties go to the smaller token.
std::array<int32_t, kTop> BestTokens(std::span<const float> logits) {
  std::array<int32_t, kTop> best;
  best.fill(-1);
  for (size_t i = 0; i < logits.size(); ++i) {
    int32_t token = static_cast<int32_t>(i);
    for (int32_t& place : best) {
      if (place < 0 || logits[token] > logits[place] ||
          (logits[token] == logits[place] && token < place)) {
        std::swap(token, place);
        if (token < 0) break;
      }
    }
  }
  return best;
}

}  // namespace

void FidelityMeter::Add(std::span<const float> full,
                        std::span<const float> policy, int32_t next_token) {
  CHECK(full.size() == policy.size() && full.size() >= kTop);
  const double full_norm = LogSumExp(full);
  const double policy_norm = LogSumExp(policy);
  double kl = 0, entropy = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    const double log_p = full[i] - full_norm;
    const double p = std::exp(log_p);
    kl += p * (log_p - (policy[i] - policy_norm));
    entropy -= p * log_p;
  }
  kl_.push_back(std::max(kl, 0.0));  // rounding may leave -1e-16
  entropy_.push_back(entropy);

  const auto full_best = BestTokens(full);
  const auto policy_best = BestTokens(policy);
  if (full_best[0] == policy_best[0]) {
    ++n_top1_equal_;
  } else if (!first_divergence_) {
    first_divergence_ = static_cast<uint32_t>(kl_.size() - 1);
  }
  for (int32_t token : full_best) {
    n_top5_common_ += std::count(policy_best.begin(), policy_best.end(), token);
  }
  const size_t next = static_cast<size_t>(next_token);
  CHECK(next < full.size());
  full_log_likelihood_ += full[next] - full_norm;
  log_likelihood_loss_ +=
      (full[next] - full_norm) - (policy[next] - policy_norm);
}

Fidelity FidelityMeter::Result() const {
  Fidelity result;
  result.n_tokens = static_cast<uint32_t>(kl_.size());
  if (kl_.empty()) return result;
  const double n = static_cast<double>(kl_.size());

  std::vector<double> sorted_entropy = entropy_;
  std::sort(sorted_entropy.begin(), sorted_entropy.end());
  const double median = Percentile<double>(sorted_entropy, 50);
  double sum = 0, sure_sum = 0;
  uint64_t n_sure = 0;
  for (size_t i = 0; i < kl_.size(); ++i) {
    sum += kl_[i];
    if (entropy_[i] <= median) {
      sure_sum += kl_[i];
      ++n_sure;
    }
  }
  result.kl_mean = sum / n;
  result.kl_mean_sure = sure_sum / static_cast<double>(n_sure);
  std::vector<double> sorted_kl = kl_;
  std::sort(sorted_kl.begin(), sorted_kl.end());
  result.kl_p95 = Percentile<double>(sorted_kl, 95);
  result.kl_p99 = Percentile<double>(sorted_kl, 99);
  result.top1_agreement = static_cast<double>(n_top1_equal_) / n;
  result.first_divergence = first_divergence_.value_or(result.n_tokens);
  result.top5_overlap = static_cast<double>(n_top5_common_) / (kTop * n);
  result.perplexity_ratio = std::exp(log_likelihood_loss_ / n);
  result.full_nll = -full_log_likelihood_ / n;
  return result;
}

}  // namespace lkv
