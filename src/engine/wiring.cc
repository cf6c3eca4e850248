// Puts an engine together: the one file that names the concrete executor and
// cache.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/machine.h"
#include "base/printable_text.h"
#include "cache/paged_kv_cache.h"
#include "engine/admission.h"
#include "engine/engine.h"
#include "engine/engine_state.h"
#include "engine/kernel_choice.h"
#include "gguf/gguf_file.h"
#include "model/architecture.h"
#include "model/cpu_executor.h"
#include "model/rope.h"
#include "model/weights.h"

namespace lkv {
namespace {

// Vocabulary, metadata, code and threads, for a vocabulary of 50,000 tokens:
// beyond weights and working memory SmolLM2-135M has 29 MiB resident once it is
// loaded, and 37 MiB while it is (VmRSS and VmHWM of two threads).
constexpr uint64_t kBaseBytes = uint64_t{48} << 20;
// The part of it that is still to be mapped when the check is made: the
// vocabulary. (SmolLM2-135M runs from 135 MiB of addresses on; the check asks
// for 140.)
constexpr uint64_t kVocabularyBytes = uint64_t{16} << 20;
// Large buffers begin and end at borders of huge pages: that of all weights,
// and those of the executor.
uint64_t PaddingBytes(uint64_t working_bytes) {
  const uint64_t n_large =
      std::min(kCpuExecutorBuffers, working_bytes / kHugePageBytes);
  return (1 + n_large) * kBufferPaddingBytes;
}

MemoryNeed NeedToLoad(const GgufFile& file, const Architecture& architecture,
                      const CpuExecutorOptions& executor) {
  MemoryNeed need;
  need.weight_bytes = WeightBytes(file, architecture);
  const uint64_t working_bytes =
      CpuExecutorWorkingBytes(architecture, executor);
  need.working_bytes = working_bytes + kBaseBytes;
  need.address_bytes = need.weight_bytes + working_bytes + kVocabularyBytes +
                       PaddingBytes(working_bytes);
  return need;
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
        "ctx_tokens: " + std::to_string(options.ctx_tokens) +
        " is more than the " + std::to_string(trained) +
        " tokens the model was trained for; lower it or allow_beyond_trained");
  }
  return options.ctx_tokens;
}

Result<uint32_t> ChooseThreads(const EngineOptions& options) {
  if (options.n_threads > ThreadTeam::kMaxThreads) {
    return InvalidArgument(
        "n_threads: " + std::to_string(options.n_threads) + " is more than " +
        std::to_string(ThreadTeam::kMaxThreads) + "; lower it");
  }
  if (options.n_threads > 0) return options.n_threads;
  return ThreadTeam::DefaultThreads();
}

// "Q4_1 x 210, f32 x 61"
std::string QuantisationOf(const GgufFile& file) {
  std::map<std::string, uint32_t> n_of_type;
  for (const GgufTensor& tensor : file.tensors()) {
    ++n_of_type[GgufTypeName(tensor.raw_type)];
  }
  std::string text;
  for (const auto& [type, n] : n_of_type) {
    if (!text.empty()) text += ", ";
    text += type;
    text += " x ";
    text += std::to_string(n);
  }
  return text;
}

std::string RopeText(const RopeOptions& rope) {
  std::string text =
      rope.order == RopeOrder::kNormal ? "neighbours turn" : "halves turn";
  for (const float value :
       {static_cast<float>(rope.n_rotated), static_cast<float>(rope.scaling),
        rope.frequency_base, rope.factor,
        static_cast<float>(rope.original_context), rope.attention_factor,
        rope.yarn_beta_fast, rope.yarn_beta_slow}) {
    text += ' ';
    text += std::to_string(value);
  }
  for (const float factor : rope.frequency_factors) {
    text += ' ';
    text += std::to_string(factor);
  }
  return text;
}

// The KV type is the sequence's business.
Fingerprint BasicFingerprint(const GgufFile& file,
                             const Architecture& architecture,
                             ActivationPrecision activations) {
  const KvShape shape = architecture.kv_shape();
  Fingerprint print;
  print.Set("activations",
            activations == ActivationPrecision::kHigh ? "high" : "auto");
  print.Set("format", "pages of 16 tokens, 1");
  print.Set("head_dim", std::to_string(shape.head_dim));
  print.Set("kv_heads", std::to_string(shape.n_kv_heads));
  print.Set("layers", std::to_string(shape.n_layers));
  print.Set("quantisation", QuantisationOf(file));
  print.Set("rope", RopeText(architecture.rope));
  return print;
}

Status CheckVocabulary(const std::string& path,
                       const Architecture& architecture,
                       const Tokenizer& tokenizer) {
  if (tokenizer.vocab_size() == architecture.vocab_size) return Status();
  return Corrupt(
      path + ": vocabulary of " + std::to_string(tokenizer.vocab_size()) +
      " tokens does not match embeddings of " +
      std::to_string(architecture.vocab_size) + "; fetch the model again");
}

std::vector<int32_t> FindEndTokens(const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < tokenizer.vocab_size(); ++i) {
    const int32_t token = static_cast<int32_t>(i);
    if (tokenizer.IsEndOfGeneration(token)) tokens.push_back(token);
  }
  return tokens;
}

// Admits the first sequence, as Start will do, to see whether it can be. While
// it is there, its addresses are gone from what the process has left.
Status CheckFirst(const std::string& path, MemoryNeed need,
                  const SequenceOptions& first, PagedKvCache& cache) {
  Result<SequenceId> id = cache.AddSequence(first);
  if (!id.ok()) return id.status();
  need.working_bytes += cache.scratch_bytes();
  need.kv_bytes = cache.Stats(*id).fill_bytes;
  const Status status = CheckFits(path, need, ReadMemoryLeft());
  cache.RemoveSequence(*id);
  return status;
}

Result<std::unique_ptr<Engine::State>> Load(const EngineOptions& options) {
  Result<const KernelTable*> kernels = ChooseKernels();
  if (!kernels.ok()) return kernels.status();
  Result<uint32_t> n_threads = ChooseThreads(options);
  if (!n_threads.ok()) return n_threads.status();
  Result<std::unique_ptr<GgufFile>> file = GgufFile::Open(options.model_path);
  if (!file.ok()) return file.status();
  Result<Architecture> architecture = ReadArchitecture(**file);
  if (!architecture.ok()) return architecture.status();
  Result<uint32_t> ctx_tokens = ChooseContext(options, *architecture);
  if (!ctx_tokens.ok()) return ctx_tokens.status();
  Result<std::unique_ptr<ThreadTeam>> team = ThreadTeam::Create(*n_threads);
  if (!team.ok()) return team.status();

  auto state = std::make_unique<Engine::State>();
  state->ctx_tokens = *ctx_tokens;
  state->model_fingerprint = (*file)->Fingerprint();
  state->model_path = options.model_path;
  state->kv_fingerprint =
      BasicFingerprint(**file, *architecture, options.activations);
  state->predictors = std::make_unique<Predictors>(
      state->model_fingerprint, architecture->kv_shape().n_lanes());
  state->team = *std::move(team);
  CpuExecutorOptions executor;
  executor.kernels = *kernels;
  executor.team = state->team.get();
  executor.activations = options.activations;
  MemoryNeed need = NeedToLoad(**file, *architecture, executor);
  if (Status s = CheckFits(options.model_path, need, ReadMemoryLeft());
      !s.ok()) {
    return s;
  }

  Result<std::unique_ptr<Tokenizer>> tokenizer =
      Tokenizer::Open(options.model_path);
  if (!tokenizer.ok()) return tokenizer.status();
  if (Status s =
          CheckVocabulary(options.model_path, *architecture, **tokenizer);
      !s.ok()) {
    return s;
  }
  state->tokenizer = *std::move(tokenizer);
  need.address_bytes -= kVocabularyBytes;  // mapped by now
  state->end_tokens = FindEndTokens(*state->tokenizer);

  PagedKvCacheOptions cache;
  cache.kernels = *kernels;
  cache.max_threads = *n_threads;
  cache.prefill_products = options.activations == ActivationPrecision::kHigh
                               ? PrefillProducts::kF32
                               : PrefillProducts::kBF16;
  cache.max_seq_tokens = options.ctx_tokens > 0
                             ? options.ctx_tokens
                             : architecture->trained_context_tokens;
  cache.memory_bytes = TotalMemoryBytes();
  cache.rotation = RopeTable(architecture->rope).rotation();
  state->cache =
      std::make_unique<PagedKvCache>(architecture->kv_shape(), cache);
  if (options.first_sequence) {
    Result<SequenceOptions> first =
        options.first_sequence(*state->tokenizer, *ctx_tokens);
    if (!first.ok()) return first.status();
    if (Status s = CheckLength(*architecture, *ctx_tokens, *first); !s.ok()) {
      return s;
    }
    const Result<Admission> admission = state->Complete(*first);
    if (!admission.ok()) return admission.status();
    if (Status s = CheckFirst(options.model_path, need, admission->options,
                              *state->cache);
        !s.ok()) {
      return s;
    }
  }

  Result<Weights> weights = LoadWeights(**file, *architecture, *state->team);
  if (!weights.ok()) return weights.status();
  state->weight_notes = std::move(weights->notes);
  state->executor =
      MakeCpuExecutor(*std::move(architecture), *std::move(weights), executor);
  return state;
}

}  // namespace

Result<Fingerprint> Engine::State::KvFingerprint() {
  if (!weights_crc) {
    Result<std::unique_ptr<GgufFile>> file = GgufFile::Open(model_path);
    if (!file.ok()) return file.status();
    if ((*file)->Fingerprint() != model_fingerprint) {
      return Corrupt(model_path +
                     ": has changed since it was loaded; open it again");
    }
    weights_crc = (*file)->ValuesCrc();
    if (Status s = (*file)->CheckWhole(); !s.ok()) return s;
  }
  Fingerprint print = kv_fingerprint;
  print.Set("weights", model_fingerprint + " " + std::to_string(*weights_crc));
  return print;
}

Result<std::unique_ptr<Engine>> Engine::Open(const EngineOptions& options) {
  Result<std::unique_ptr<State>> state =
      CatchRefusedMemory(options.model_path, [&] { return Load(options); });
  if (!state.ok()) return state.status();
  return std::unique_ptr<Engine>(new Engine(*std::move(state)));
}

}  // namespace lkv
