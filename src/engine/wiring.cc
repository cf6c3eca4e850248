// Puts an engine together: the one file that names the concrete executor and
// cache.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "cache/paged_kv_cache.h"
#include "engine/engine.h"
#include "engine/engine_state.h"
#include "engine/machine.h"
#include "gguf/gguf_file.h"
#include "kernels/kernel_table.h"
#include "model/architecture.h"
#include "model/cpu_executor.h"
#include "model/weights.h"

namespace lkv {
namespace {

// Vocabulary, metadata, code and threads, for a vocabulary of 50,000 tokens:
// beyond weights and working memory SmolLM2-135M has 29 MiB resident once it is
// loaded, and 37 MiB while it is (VmRSS and VmHWM of two threads).
constexpr uint64_t kBaseBytes = uint64_t{48} << 20;

Result<const KernelTable*> ChooseKernels() {
  const char* forced = std::getenv("LKV_KERNELS");
  if (const KernelTable* kernels = SelectKernels(forced)) return kernels;
  std::string known;
  for (const char* const* name = AvailableKernels(); *name != nullptr; ++name) {
    known += known.empty() ? *name : std::string(", ") + *name;
  }
  return InvalidArgument("LKV_KERNELS=" + std::string(forced) +
                         ": this processor does not run it; choose one of " +
                         known);
}

Result<uint32_t> ChooseContext(const EngineOptions& options,
                               const Architecture& architecture) {
  const uint32_t trained = architecture.trained_context_tokens;
  if (options.ctx_tokens == 0) {
    return options.allow_beyond_trained ? std::numeric_limits<uint32_t>::max()
                                        : trained;
  }
  if (options.ctx_tokens > trained && !options.allow_beyond_trained) {
    return InvalidArgument(
        "--ctx: " + std::to_string(options.ctx_tokens) + " is more than the " +
        std::to_string(trained) +
        " tokens the model was trained for; lower it or pass "
        "--allow-beyond-trained");
  }
  return options.ctx_tokens;
}

std::vector<int32_t> FindEndTokens(const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < tokenizer.vocab_size(); ++i) {
    const int32_t token = static_cast<int32_t>(i);
    if (tokenizer.IsEndOfGeneration(token)) tokens.push_back(token);
  }
  return tokens;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Open(const EngineOptions& options) {
  if (options.n_threads > ThreadTeam::kMaxThreads) {
    return InvalidArgument("--threads: " + std::to_string(options.n_threads) +
                           " is more than " +
                           std::to_string(ThreadTeam::kMaxThreads));
  }
  Result<const KernelTable*> kernels = ChooseKernels();
  if (!kernels.ok()) return kernels.status();
  Result<std::unique_ptr<GgufFile>> file = GgufFile::Open(options.model_path);
  if (!file.ok()) return file.status();
  Result<Architecture> architecture = ReadArchitecture(**file);
  if (!architecture.ok()) return architecture.status();
  Result<uint32_t> ctx_tokens = ChooseContext(options, *architecture);
  if (!ctx_tokens.ok()) return ctx_tokens.status();

  auto state = std::make_unique<State>();
  state->ctx_tokens = *ctx_tokens;
  state->team = std::make_unique<ThreadTeam>(
      options.n_threads > 0 ? options.n_threads
                            : std::min(UsableCores(), ThreadTeam::kMaxThreads));

  CpuExecutorOptions executor;
  executor.kernels = *kernels;
  executor.team = state->team.get();
  executor.activations = options.activations;
  const uint64_t available_bytes = AvailableMemoryBytes();
  const uint64_t needed_bytes =
      EstimateWeightBytes(**file) +
      CpuExecutorWorkingBytes(*architecture, executor) + kBaseBytes;
  if (Status s = CheckFits(options.model_path, needed_bytes, available_bytes);
      !s.ok()) {
    return s;
  }

  Result<std::unique_ptr<Tokenizer>> tokenizer =
      Tokenizer::Open(options.model_path);
  if (!tokenizer.ok()) return tokenizer.status();
  if ((*tokenizer)->vocab_size() != architecture->vocab_size) {
    return Corrupt(options.model_path + ": vocabulary of " +
                   std::to_string((*tokenizer)->vocab_size()) +
                   " tokens does not match embeddings of " +
                   std::to_string(architecture->vocab_size) +
                   "; fetch the model again");
  }
  state->tokenizer = *std::move(tokenizer);
  state->end_tokens = FindEndTokens(*state->tokenizer);

  Result<Weights> weights = LoadWeights(**file, *architecture, *state->team);
  if (!weights.ok()) return weights.status();
  state->weight_notes = std::move(weights->notes);
  PagedKvCacheOptions cache;
  cache.kernels = *kernels;
  cache.max_threads = state->team->n_threads();
  cache.max_seq_tokens = options.ctx_tokens > 0
                             ? options.ctx_tokens
                             : architecture->trained_context_tokens;
  cache.memory_bytes = available_bytes - needed_bytes;
  state->cache =
      std::make_unique<PagedKvCache>(architecture->kv_shape(), cache);
  state->executor =
      MakeCpuExecutor(*std::move(architecture), *std::move(weights), executor);
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

}  // namespace lkv
