#include "text/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/check.h"
#include "llama.h"
#include "text/grammar.h"

namespace lkv {
namespace {

constexpr int32_t kPenaltyTokens = 64;
// Stands for -inf and NaN in logits, +inf likewise: libllama's softmax of
// infinities is NaN.
constexpr float kLogitBound = 1e30f;

struct FreeSampler {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using LlamaSampler = std::unique_ptr<llama_sampler, FreeSampler>;

Status Refuse(const char* name, double value, const char* allowed) {
  std::array<char, 32> number;
  std::snprintf(number.data(), number.size(), "%g", value);
  return InvalidArgument(std::string(name) + ": " + number.data() +
                         " is not in " + allowed);
}

LlamaSampler BuildChain(const SamplerOptions& o, int32_t n_vocab) {
  llama_sampler* chain =
      llama_sampler_chain_init(llama_sampler_chain_default_params());
  auto add = [&](llama_sampler* part) { llama_sampler_chain_add(chain, part); };
  if (o.repeat_penalty != 1) {
    add(llama_sampler_init_penalties(n_vocab, kPenaltyTokens, o.repeat_penalty,
                                     0.0f, 0.0f));
  }
  if (o.temperature == 0) {
    add(llama_sampler_init_greedy());
    return LlamaSampler(chain);
  }
  if (o.top_k > 0) add(llama_sampler_init_top_k(o.top_k));
  if (o.top_p < 1) add(llama_sampler_init_top_p(o.top_p, 1));
  if (o.min_p > 0) add(llama_sampler_init_min_p(o.min_p, 1));
  add(llama_sampler_init_temp(o.temperature));
  // libllama draws a seed of its own for this one value.
  const bool reserved = o.seed == LLAMA_DEFAULT_SEED;
  add(llama_sampler_init_dist(reserved ? o.seed - 1 : o.seed));
  return LlamaSampler(chain);
}

int32_t FirstEndToken(const llama_vocab* vocab) {
  const int32_t n_vocab = llama_vocab_n_tokens(vocab);
  for (int32_t token = 0; token < n_vocab; ++token) {
    if (llama_vocab_is_eog(vocab, token)) return token;
  }
  return LLAMA_TOKEN_NULL;
}

}  // namespace

Status CheckSamplerNumbers(const SamplerOptions& o) {
  // Written so that NaN fails every one of them.
  if (!(o.temperature >= 0 && o.temperature <= 100)) {
    return Refuse("temperature", o.temperature, "0..100; 0 is greedy");
  }
  if (o.top_k < 0) {
    return Refuse("top_k", o.top_k, "0..2147483647; 0 switches it off");
  }
  if (!(o.top_p > 0 && o.top_p <= 1)) {
    return Refuse("top_p", o.top_p, "(0, 1]; 1 switches it off");
  }
  if (!(o.min_p >= 0 && o.min_p <= 1)) {
    return Refuse("min_p", o.min_p, "0..1; 0 switches it off");
  }
  if (!(o.repeat_penalty > 0 && o.repeat_penalty <= 100)) {
    return Refuse("repeat_penalty", o.repeat_penalty,
                  "(0, 100]; 1 switches it off");
  }
  return {};
}

struct Sampler::State {
  LlamaSampler chain;
  LlamaSampler grammar;  // nullptr: none
  int32_t end_token = LLAMA_TOKEN_NULL;
  std::vector<llama_token_data> candidates;  // [vocab_size]

  llama_token_data_array FillCandidates(std::span<const float> logits) {
    for (size_t i = 0; i < logits.size(); ++i) {
      const float logit =
          std::isnan(logits[i])
              ? -kLogitBound
              : std::clamp(logits[i], -kLogitBound, kLogitBound);
      candidates[i] = {static_cast<llama_token>(i), logit, 0.0f};
    }
    return {candidates.data(), candidates.size(), -1, false};
  }

  int32_t DrawFromChain(llama_token_data_array* array) {
    llama_sampler_apply(chain.get(), array);
    CHECK(array->selected >= 0);
    return array->data[array->selected].id;
  }

  bool GrammarAllows(int32_t token) {
    llama_token_data one = {token, 0.0f, 0.0f};
    llama_token_data_array array = {&one, 1, -1, false};
    llama_sampler_apply(grammar.get(), &array);
    return one.logit == 0.0f;
  }

  // The grammar applied to the whole vocabulary costs milliseconds, to one
  // token microseconds, and most tokens of a willing model fit: so draw first.
  int32_t DrawWithGrammar(std::span<const float> logits) {
    llama_token_data_array array = FillCandidates(logits);
    int32_t token = DrawFromChain(&array);
    if (!GrammarAllows(token)) {
      array = FillCandidates(logits);
      llama_sampler_apply(grammar.get(), &array);
      const bool stuck = std::all_of(
          array.data, array.data + array.size,
          [](const llama_token_data& t) { return std::isinf(t.logit); });
      // No token of this vocabulary continues the text.
      if (stuck) return end_token;
      token = DrawFromChain(&array);
    }
    if (GrammarAllows(token)) llama_sampler_accept(grammar.get(), token);
    return token;
  }
};

Result<std::unique_ptr<Sampler>> Sampler::Create(
    const Tokenizer& tokenizer, const SamplerOptions& options) {
  if (Status s = CheckSamplerNumbers(options); !s.ok()) return s;
  const llama_vocab* vocab = tokenizer.vocab();
  auto state = std::make_unique<State>();
  state->candidates.resize(tokenizer.vocab_size());
  if (!options.grammar.empty()) {
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) {
      return InvalidArgument(
          "grammar: the model has no vocabulary; leave the grammar out");
    }
    Status s = CheckGrammar(vocab, options.grammar, options.grammar_name);
    if (!s.ok()) return s;
    state->grammar.reset(
        llama_sampler_init_grammar(vocab, options.grammar.c_str(), "root"));
    if (state->grammar == nullptr) {
      return InvalidArgument(
          options.grammar_name +
          ": libllama refuses the grammar; try a simpler one");
    }
    state->end_token = FirstEndToken(vocab);
    if (state->end_token == LLAMA_TOKEN_NULL) {
      return InvalidArgument(
          "grammar: the model has no end token to finish with; leave the "
          "grammar out");
    }
  }
  state->chain = BuildChain(options, llama_vocab_n_tokens(vocab));
  return std::unique_ptr<Sampler>(new Sampler(std::move(state)));
}

Sampler::Sampler(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sampler::~Sampler() = default;

int32_t Sampler::Sample(std::span<const float> logits) {
  CHECK(logits.size() == state_->candidates.size());
  int32_t token = 0;
  if (state_->grammar == nullptr) {
    llama_token_data_array array = state_->FillCandidates(logits);
    token = state_->DrawFromChain(&array);
  } else {
    token = state_->DrawWithGrammar(logits);
  }
  llama_sampler_accept(state_->chain.get(), token);
  return token;
}

void Sampler::Accept(int32_t token) {
  llama_sampler_accept(state_->chain.get(), token);
}

}  // namespace lkv
