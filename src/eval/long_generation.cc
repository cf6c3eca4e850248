#include "eval/long_generation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "eval/forced_run.h"
#include "eval/full_cache.h"
#include "eval/log_sum_exp.h"
#include "options/policy_text.h"
#include "text/sampler.h"

namespace lkv {
namespace {

// Resident bytes while a text is written.
class MemoryCurve {
 public:
  void Add(const SequenceStats& stats) {
    if (stats.evicted_tokens > 0) bytes_.push_back(stats.resident_bytes);
  }
  std::optional<double> Growth() const {
    if (bytes_.size() < 2) return std::nullopt;
    const auto middle = bytes_.begin() + std::ssize(bytes_) / 2;
    return static_cast<double>(*std::max_element(middle, bytes_.end())) /
           static_cast<double>(*std::max_element(bytes_.begin(), middle));
  }

 private:
  std::vector<uint64_t> bytes_;  // since the first eviction
};

class Continuations {
 public:
  Continuations(Engine& engine, const LongGenerationOptions& options,
                const std::function<void()>& advance,
                const std::function<bool()>& cancelled)
      : engine_(engine),
        options_(options),
        advance_(advance),
        cancelled_(cancelled) {
    const Tokenizer& tokenizer = engine.tokenizer();
    for (uint32_t i = 0; i < tokenizer.vocab_size(); ++i) {
      const auto token = static_cast<int32_t>(i);
      if (tokenizer.IsEndOfGeneration(token)) end_tokens_.push_back(i);
    }
  }

  // Writes under cache.policy and has the text judged. The caller fills in
  // what compares it with others.
  Result<LongGenerationRow> Write(std::span<const int32_t> prompt,
                                  const CacheOptions& cache) const {
    SequenceOptions admission;
    admission.cache = cache;
    admission.prompt_tokens = options_.prompt_tokens;
    admission.max_new_tokens = options_.new_tokens;
    Result<std::unique_ptr<Sequence>> sequence = engine_.Start(admission);
    if (!sequence.ok()) return sequence.status();
    MemoryCurve memory;
    Result<std::vector<int32_t>> tokens = Draw(**sequence, prompt, &memory);
    if (!tokens.ok()) return tokens.status();
    const SequenceStats stats = (*sequence)->stats();
    LongGenerationRow row;
    row.budget = cache.budget;
    row.tokens = *std::move(tokens);
    row.resident_bytes_max = stats.resident_bytes_max;
    row.evicted_tokens = stats.evicted_tokens;
    row.growth = memory.Growth();
    row.repetition = RepetitionOf(row.tokens);
    Result<double> perplexity = PerplexityOf(prompt, row.tokens);
    if (!perplexity.ok()) return perplexity.status();
    row.perplexity = *perplexity;
    return row;
  }

 private:
  // Not by Engine::Continue, which tells of whole characters: every token is a
  // step of the progress and of the memory curve.
  Result<std::vector<int32_t>> Draw(Sequence& sequence,
                                    std::span<const int32_t> prompt,
                                    MemoryCurve* memory) const {
    SamplerOptions options;
    options.temperature = options_.temperature;
    options.repeat_penalty = options_.repeat_penalty;
    options.seed = options_.seed;
    Result<std::unique_ptr<Sampler>> sampler =
        Sampler::Create(engine_.tokenizer(), options);
    if (!sampler.ok()) return sampler.status();
    for (int32_t token : prompt) (*sampler)->Accept(token);
    if (Status s = sequence.Prefill(prompt, {}, cancelled_); !s.ok()) return s;
    std::vector<int32_t> tokens;
    std::vector<float> logits;
    while (true) {
      if (cancelled_ && cancelled_()) {
        return Cancelled("evaluation: stopped on request");
      }
      logits.assign(sequence.logits().begin(), sequence.logits().end());
      if (!std::isfinite(LogSumExp(logits))) {
        return Corrupt(
            "model: its logits are no numbers, its weights overflow; fetch or "
            "convert it again");
      }
      for (size_t end : end_tokens_) {
        logits[end] = -std::numeric_limits<float>::infinity();
      }
      tokens.push_back((*sampler)->Sample(logits));
      memory->Add(sequence.stats());
      advance_();
      if (tokens.size() == options_.new_tokens) return tokens;
      if (Status s = sequence.Decode(tokens.back()); !s.ok()) return s;
    }
  }
  // Of `text` behind the prompt, with everything kept.
  Result<double> PerplexityOf(std::span<const int32_t> prompt,
                              std::span<const int32_t> text) const {
    const CacheOptions cache = FullCacheOf(options_.cache);
    const ForcedPart part{.prefill = prompt,
                          .decode = text.first(text.size() - 1)};
    double log_likelihood = 0;
    size_t i = 0;
    const auto judge = [&](const Sequence& now) {
      const std::span<const float> logits = now.logits();
      log_likelihood +=
          logits[static_cast<size_t>(text[i++])] - LogSumExp(logits);
      advance_();
    };
    Result<std::unique_ptr<Sequence>> sequence =
        StartAndRunForced(engine_, {&part, 1}, OptionsFor({&part, 1}, cache),
                          judge, {}, cancelled_);
    if (!sequence.ok()) return sequence.status();
    return std::exp(-log_likelihood / static_cast<double>(text.size()));
  }

  Engine& engine_;
  const LongGenerationOptions& options_;
  const std::function<void()>& advance_;
  const std::function<bool()>& cancelled_;
  std::vector<size_t> end_tokens_;  // never drawn
};

Status CheckTexts(std::span<const TokenizedText> texts,
                  const LongGenerationOptions& options) {
  for (const TokenizedText& text : texts) {
    if (text.tokens.size() < options.prompt_tokens) {
      return InvalidArgument(
          text.name + ": has " + std::to_string(text.tokens.size()) +
          " tokens, fewer than the " + std::to_string(options.prompt_tokens) +
          " to go on from; give a longer text or a shorter "
          "context");
    }
  }
  return {};
}

// The caches of all rows, by budget, then policy.
Result<std::vector<CacheOptions>> CachesOf(
    const LongGenerationOptions& options) {
  std::vector<CacheOptions> caches;
  for (const Budget& budget : options.budgets) {
    for (const std::string& name : options.policies) {
      const Result<PolicyName> policy = ParsePolicy(name);
      if (!policy.ok()) return policy.status();
      CacheOptions& cache = caches.emplace_back(options.cache);
      cache.policy = *policy;
      cache.budget = budget;
      if (cache.policy == PolicyName::kRepeat) {
        return InvalidArgument(
            "policy: repeat reads a context twice, a generation has none; "
            "leave it out");
      }
    }
  }
  return caches;
}

}  // namespace

Status CheckPolicies(const LongGenerationOptions& options) {
  return CachesOf(options).status();
}

Result<std::vector<LongGeneration>> MeasureLongGeneration(
    Engine& engine, std::span<const TokenizedText> texts,
    const LongGenerationOptions& options,
    const std::function<void(uint64_t, uint64_t)>& progress,
    const std::function<bool()>& cancelled) {
  if (Status s = CheckTexts(texts, options); !s.ok()) return s;
  const Result<std::vector<CacheOptions>> caches = CachesOf(options);
  if (!caches.ok()) return caches.status();
  const uint64_t n_all =
      texts.size() * (1 + caches->size()) * 2 * options.new_tokens;
  uint64_t n_done = 0;
  const std::function<void()> advance = [&] {
    ++n_done;
    if (progress) progress(n_done, n_all);
  };
  const Continuations continuations(engine, options, advance, cancelled);
  const CacheOptions keeping_all = FullCacheOf(options.cache);
  std::vector<LongGeneration> report;
  for (const TokenizedText& text : texts) {
    const auto prompt = std::span(text.tokens).first(options.prompt_tokens);
    LongGeneration& generation = report.emplace_back();
    generation.text_name = text.name;
    Result<LongGenerationRow> full = continuations.Write(prompt, keeping_all);
    if (!full.ok()) return full.status();
    full->policy = "full";
    full->common_tokens = static_cast<uint32_t>(full->tokens.size());
    generation.full = *std::move(full);
    for (size_t r = 0; r < caches->size(); ++r) {
      Result<LongGenerationRow> row = continuations.Write(prompt, (*caches)[r]);
      if (!row.ok()) return row.status();
      row->policy = options.policies[r % options.policies.size()];
      row->common_tokens = static_cast<uint32_t>(
          std::mismatch(row->tokens.begin(), row->tokens.end(),
                        generation.full.tokens.begin())
              .first -
          row->tokens.begin());
      generation.rows.push_back(*std::move(row));
    }
  }
  return report;
}

}  // namespace lkv
