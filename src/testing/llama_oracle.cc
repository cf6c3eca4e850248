#include "testing/llama_oracle.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "llama.h"

namespace lkv {
namespace {

constexpr uint32_t kBatchTokens = 512;

}  // namespace

struct LlamaOracle::State {
  std::unique_ptr<llama_model, decltype(&llama_model_free)> model;
  std::unique_ptr<llama_context, decltype(&llama_free)> context;
};

std::unique_ptr<LlamaOracle> LlamaOracle::Open(
    const std::string& path, const LlamaOracleOptions& options) {
  // A test log is for facts about our code.
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);

  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  model_params.use_extra_bufts =
      options.repack == LlamaOracleOptions::Repack::kOn;
  std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
      llama_model_load_from_file(path.c_str(), model_params),
      &llama_model_free);
  if (model == nullptr) return nullptr;

  const ggml_type kv_type = options.kv == LlamaOracleOptions::Kv::kF32
                                ? GGML_TYPE_F32
                                : GGML_TYPE_F16;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = options.context_tokens;
  params.n_batch = kBatchTokens;
  params.n_ubatch = kBatchTokens;
  params.n_threads = static_cast<int32_t>(options.n_threads);
  params.n_threads_batch = params.n_threads;
  params.type_k = kv_type;
  params.type_v = kv_type;
  params.flash_attn_type =
      options.flash_attention == LlamaOracleOptions::FlashAttention::kOn
          ? LLAMA_FLASH_ATTN_TYPE_ENABLED
          : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  std::unique_ptr<llama_context, decltype(&llama_free)> context(
      llama_init_from_model(model.get(), params), &llama_free);
  if (context == nullptr) return nullptr;
  return std::unique_ptr<LlamaOracle>(new LlamaOracle(
      std::make_unique<State>(State{std::move(model), std::move(context)})));
}

LlamaOracle::LlamaOracle(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
LlamaOracle::~LlamaOracle() = default;

uint32_t LlamaOracle::vocab_size() const {
  return static_cast<uint32_t>(
      llama_vocab_n_tokens(llama_model_get_vocab(state_->model.get())));
}

std::vector<float> LlamaOracle::Logits(std::span<const int32_t> tokens) {
  llama_context* context = state_->context.get();
  llama_memory_clear(llama_get_memory(context), /*data=*/true);
  const size_t n_vocab = vocab_size();
  std::vector<float> logits(tokens.size() * n_vocab);
  llama_batch batch = llama_batch_init(kBatchTokens, 0, 1);
  for (size_t begin = 0; begin < tokens.size(); begin += kBatchTokens) {
    size_t n = std::min<size_t>(kBatchTokens, tokens.size() - begin);
    batch.n_tokens = static_cast<int32_t>(n);
    for (size_t i = 0; i < n; ++i) {
      batch.token[i] = tokens[begin + i];
      batch.pos[i] = static_cast<llama_pos>(begin + i);
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    CHECK(llama_decode(context, batch) == 0);
    for (size_t i = 0; i < n; ++i) {
      const float* row = llama_get_logits_ith(context, static_cast<int32_t>(i));
      std::copy_n(row, n_vocab, &logits[(begin + i) * n_vocab]);
    }
  }
  llama_batch_free(batch);
  return logits;
}

}  // namespace lkv
