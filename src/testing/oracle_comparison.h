// What oracle tests of executors share: running a text through an
// executor, and measuring how far two sets of logits are apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "cache/kv_cache.h"
#include "llama.h"
#include "model/executor.h"

namespace lkv {

// Logits of all positions [tokens.size(), vocab_size], computed in chunks of
// at most chunk_tokens (1 = as decoding does).
inline std::vector<float> RunTokens(Executor& executor, KvCache& cache,
                                    std::span<const int32_t> tokens,
                                    uint32_t chunk_tokens,
                                    KvTypeName kv_type = KvTypeName::kF16) {
  const size_t vocab_size = executor.architecture().vocab_size;
  SequenceOptions options;
  options.cache.policy = PolicyName::kFull;
  options.cache.kv_type = kv_type;
  options.prompt_tokens = static_cast<uint32_t>(tokens.size());
  Result<SequenceId> sequence = cache.AddSequence(options);
  CHECK(sequence.ok());

  std::vector<float> logits(tokens.size() * vocab_size);
  for (size_t begin = 0; begin < tokens.size(); begin += chunk_tokens) {
    const size_t n = std::min<size_t>(chunk_tokens, tokens.size() - begin);
    std::vector<uint32_t> positions(n), rows(n);
    for (size_t i = 0; i < n; ++i) {
      positions[i] = static_cast<uint32_t>(begin + i);
      rows[i] = static_cast<uint32_t>(i);
    }
    const StepEntry entry{*sequence, static_cast<uint32_t>(n)};
    const StepBatch batch{
        tokens.subspan(begin, n), {&entry, 1}, positions, rows};
    const Status status = executor.Step(
        batch, cache,
        std::span(logits).subspan(begin * vocab_size, n * vocab_size), {});
    CHECK(status.ok());
  }
  cache.RemoveSequence(*sequence);
  return logits;
}

// How far logits are from the truth, over all positions.
struct LogitDistance {
  double largest_of_rms = 0;  // largest difference / RMS of the true logits
  double rms_of_rms = 0;      // RMS of the differences, likewise
  double mean_kl = 0;         // from the true distribution, nats
  double top1_agreement = 0;
};

inline LogitDistance MeasureDistance(std::span<const float> truth,
                                     std::span<const float> logits,
                                     size_t vocab_size) {
  CHECK(truth.size() == logits.size() && !truth.empty());
  const size_t n_positions = truth.size() / vocab_size;
  double squares = 0, error_squares = 0, largest = 0, kl = 0;
  size_t n_agree = 0;
  // log(sum(exp(x))), safe from overflow.
  const auto log_sum = [](std::span<const float> x) {
    const double peak = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (float value : x) sum += std::exp(value - peak);
    return peak + std::log(sum);
  };
  const auto best = [](std::span<const float> x) {
    return std::max_element(x.begin(), x.end()) - x.begin();
  };
  for (size_t i = 0; i < n_positions; ++i) {
    const auto a = truth.subspan(i * vocab_size, vocab_size);
    const auto b = logits.subspan(i * vocab_size, vocab_size);
    const double log_sum_a = log_sum(a);
    const double log_sum_b = log_sum(b);
    for (size_t j = 0; j < vocab_size; ++j) {
      const double difference = double{a[j]} - b[j];
      squares += double{a[j]} * a[j];
      error_squares += difference * difference;
      largest = std::max(largest, std::abs(difference));
      const double log_p = a[j] - log_sum_a;
      kl += std::exp(log_p) * (log_p - (b[j] - log_sum_b));
    }
    if (best(a) == best(b)) ++n_agree;
  }
  const double rms = std::sqrt(squares / truth.size());
  return {largest / rms, std::sqrt(error_squares / truth.size()) / rms,
          kl / n_positions, static_cast<double>(n_agree) / n_positions};
}

inline std::vector<int32_t> RandomTokens(size_t n, uint32_t vocab_size) {
  std::mt19937 random(11);
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % vocab_size);
  }
  return tokens;
}

// The first n tokens of a text file, by the vocabulary of a model file.
inline std::vector<int32_t> TokensOfFile(const std::string& model_path,
                                         const std::string& text_path,
                                         size_t n) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
      llama_model_load_from_file(model_path.c_str(), params),
      &llama_model_free);
  CHECK(model != nullptr);
  std::ifstream file(text_path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<int32_t> tokens(text.size() + 8);
  const int32_t n_found =
      llama_tokenize(llama_model_get_vocab(model.get()), text.data(),
                     static_cast<int32_t>(text.size()), tokens.data(),
                     static_cast<int32_t>(tokens.size()), true, false);
  CHECK(n_found >= static_cast<int32_t>(n));
  tokens.resize(n);
  return tokens;
}

}  // namespace lkv
