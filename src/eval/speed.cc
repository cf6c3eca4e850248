#include "eval/speed.h"

#include <algorithm>
#include <memory>

#include "base/aligned_buffer.h"
#include "base/stopwatch.h"
#include "base/thread_team.h"
#include "eval/stream_probe.h"

namespace lkv {
namespace {

// Decode steps before the first row.
constexpr uint32_t kWarmUpSteps = 32;

// `n` tokens of the text from `first` on, around its end; without a text,
// pseudo-random ids (a 32-bit LCG, the same for every run).
std::vector<int32_t> MakeTokens(const SpeedOptions& options,
                                uint32_t vocab_size, size_t first, size_t n) {
  std::vector<int32_t> tokens(n);
  uint32_t state = static_cast<uint32_t>(first) + 1;
  for (size_t i = 0; i < n; ++i) {
    if (!options.text.empty()) {
      tokens[i] = options.text[(first + i) % options.text.size()];
      continue;
    }
    state = state * 1664525u + 1013904223u;
    tokens[i] = static_cast<int32_t>((uint64_t{state} * vocab_size) >> 32);
  }
  return tokens;
}

// A sequence needs one token to start from.
uint32_t PromptOf(uint32_t depth_tokens) { return std::max(depth_tokens, 1u); }

// Takes memory from the system and gives it back. A virtual machine may have to
// get from its host what nobody has used for some seconds: on one, 192 MiB took
// 1,475 ms (as long as a prompt of 2,048 tokens) the first time and 24 ms the
// second. A process that serves one request after another pays for it once.
void TouchMemory(uint64_t n_bytes) {
  constexpr size_t kSystemPageBytes = 4096;
  AlignedBuffer<uint8_t> memory(n_bytes);
  for (size_t i = 0; i < n_bytes; i += kSystemPageBytes) memory.data()[i] = 1;
}

class SpeedRun {
 public:
  // `team`: as many threads as the engine's, for the plain read.
  SpeedRun(Engine& engine, ThreadTeam& team, const SpeedOptions& options,
           const std::function<bool()>& cancelled)
      : engine_(engine),
        options_(options),
        depths_(options.gen_tokens > 0 ? options.depths
                                       : std::vector<uint32_t>()),
        cancelled_(cancelled),
        probe_(team) {}

  // Of decode rows: none without steps.
  const std::vector<uint32_t>& depths() const { return depths_; }

  // Refuses at once what the sequences of a row would be refused for after
  // minutes.
  Status CheckAdmission(const CacheOptions& cache, uint32_t n_prompt,
                        uint32_t n_new, uint32_t batch) {
    std::vector<std::unique_ptr<Sequence>> sequences;
    for (uint32_t i = 0; i < batch; ++i) {
      Result<std::unique_ptr<Sequence>> sequence =
          engine_.Start(OptionsFor(cache, n_prompt, n_new));
      if (!sequence.ok()) return sequence.status();
      sequences.push_back(*std::move(sequence));
    }
    return Status();
  }

  Status WarmUp() {
    CacheOptions cache = options_.cache;
    cache.budget = Budget{};
    cache.policy = PolicyName::kFull;
    Result<std::unique_ptr<Sequence>> sequence =
        Start(cache, WarmUpPrompt(), kWarmUpSteps, 0);
    if (!sequence.ok()) return sequence.status();
    for (int32_t token : Tokens(0, kWarmUpSteps)) {
      if (Status s = (*sequence)->Decode(token); !s.ok()) return s;
    }
    return Status();
  }

  Result<SpeedRow> Prefill(uint32_t n_tokens, const CacheOptions& cache) {
    SpeedRow row = NewRow(SpeedRow::Kind::kPrefill, n_tokens, 1, cache);
    Result<std::unique_ptr<Sequence>> sequence = Start(cache, n_tokens, 0, 0);
    if (!sequence.ok()) return sequence.status();
    row.tokens_per_second = (*sequence)->times().PrefillRate();
    row.resident_bytes = (*sequence)->stats().resident_bytes;
    return row;
  }

  Result<SpeedRow> Decode(uint32_t depth, uint32_t batch,
                          const CacheOptions& cache) {
    SpeedRow row = NewRow(SpeedRow::Kind::kDecode, depth, batch, cache);
    row.shared_prompt = options_.shared_prompt && batch > 1;
    const uint32_t n_prompt = PromptOf(depth);
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<Sequence*> pointers;
    std::vector<std::vector<int32_t>> forced;
    for (uint32_t i = 0; i < batch; ++i) {
      Result<std::unique_ptr<Sequence>> sequence =
          options_.shared_prompt && i > 0
              ? Fork(*sequences[0])
              : Start(cache, n_prompt, options_.gen_tokens, i);
      if (!sequence.ok()) return sequence.status();
      sequences.push_back(*std::move(sequence));
      pointers.push_back(sequences.back().get());
      forced.push_back(Tokens(i + n_prompt, options_.gen_tokens));
    }
    std::vector<int32_t> tokens(batch);
    std::vector<float> cpu_us;
    cpu_us.reserve(options_.gen_tokens);
    for (uint32_t step = 0; step < options_.gen_tokens; ++step) {
      if (cancelled_ && cancelled_()) {
        return Cancelled("bench: stopped on request");
      }
      for (uint32_t i = 0; i < batch; ++i) tokens[i] = forced[i][step];
      const CpuStopwatch cpu;
      if (Status s = engine_.DecodeBatch(pointers, tokens); !s.ok()) return s;
      cpu_us.push_back(static_cast<float>(cpu.Seconds() * 1e6));
    }
    const StepTimes& times = sequences[0]->times();
    row.tokens_per_second = batch * times.DecodeRate();
    row.step = SummarizeSteps(times.step_us);
    row.step_cpu = SummarizeSteps(cpu_us);
    row.policy_share = times.PolicyShare();
    row.read_bytes_per_step = engine_.weight_bytes();
    for (const Sequence* sequence : pointers) {
      row.read_bytes_per_step += sequence->stats().read_bytes_last_step;
    }
    row.resident_bytes = sequences[0]->stats().resident_bytes;
    return row;
  }

 private:
  // As long as the longest prompt asked for, but no longer than one step takes:
  // what a step works in is then in memory. (On a virtual machine the first
  // 512 tokens of a process took 1.5 times as long as the next.)
  uint32_t WarmUpPrompt() const {
    uint32_t longest = kWarmUpSteps;
    for (const auto* lengths : {&depths_, &options_.prefill_tokens}) {
      for (uint32_t n : *lengths) longest = std::max(longest, n);
    }
    return std::min(longest, engine_.max_step_tokens());
  }

  std::vector<int32_t> Tokens(size_t first, size_t n) const {
    return MakeTokens(options_, engine_.architecture().vocab_size, first, n);
  }

  static SequenceOptions OptionsFor(const CacheOptions& cache,
                                    uint32_t n_prompt, uint32_t n_new) {
    SequenceOptions options;
    options.cache = cache;
    options.prompt_tokens = n_prompt;
    options.max_new_tokens = n_new;
    return options;
  }

  // A sequence with n_prompt tokens read; `first` shifts the text, so that the
  // sequences of a batch differ.
  Result<std::unique_ptr<Sequence>> Start(const CacheOptions& cache,
                                          uint32_t n_prompt, uint32_t n_new,
                                          size_t first) {
    Result<std::unique_ptr<Sequence>> sequence =
        engine_.Start(OptionsFor(cache, n_prompt, n_new));
    if (!sequence.ok()) return sequence;
    TouchMemory((*sequence)->stats().fill_bytes);
    Status s = (*sequence)->Prefill(Tokens(first, n_prompt), {}, cancelled_);
    if (!s.ok()) return s;
    return sequence;
  }

  // (Without touching memory the first step of 8 forks took 10 times as long as
  // the next.)
  Result<std::unique_ptr<Sequence>> Fork(const Sequence& sequence) {
    TouchMemory(sequence.stats().fill_bytes);
    return engine_.Fork(sequence);
  }

  SpeedRow NewRow(SpeedRow::Kind kind, uint32_t depth, uint32_t batch,
                  const CacheOptions& cache) {
    SpeedRow row;
    row.kind = kind;
    row.depth_tokens = depth;
    row.batch = batch;
    row.budget = cache.budget;
    row.kv_type = cache.kv_type;
    row.n_threads = engine_.n_threads();
    row.stream_gb_s = probe_.MeasureGigabytesPerSecond();
    return row;
  }

  Engine& engine_;
  const SpeedOptions& options_;
  const std::vector<uint32_t> depths_;
  const std::function<bool()>& cancelled_;
  StreamProbe probe_;
};

}  // namespace

Result<std::vector<SpeedRow>> MeasureSpeed(
    Engine& engine, const SpeedOptions& options,
    const std::function<void(const SpeedRow&)>& on_row,
    const std::function<bool()>& cancelled) {
  std::vector<CacheOptions> caches;
  for (KvTypeName kv_type : options.kv_types) {
    for (const Budget& budget : options.budgets) {
      caches.push_back(options.cache);
      caches.back().kv_type = kv_type;
      caches.back().budget = budget;
    }
  }
  Result<std::unique_ptr<ThreadTeam>> team =
      ThreadTeam::Create(engine.n_threads());
  if (!team.ok()) return team.status();
  SpeedRun run(engine, **team, options, cancelled);
  const uint32_t largest_batch =
      *std::max_element(options.batches.begin(), options.batches.end());
  for (const CacheOptions& cache : caches) {
    for (uint32_t n_tokens : options.prefill_tokens) {
      Status s = run.CheckAdmission(cache, n_tokens, 0, 1);
      if (!s.ok()) return s;
    }
    for (uint32_t depth : run.depths()) {
      // Forks share their prompt.
      Status s = run.CheckAdmission(cache, PromptOf(depth), options.gen_tokens,
                                    options.shared_prompt ? 1 : largest_batch);
      if (!s.ok()) return s;
    }
  }

  if (Status s = run.WarmUp(); !s.ok()) return s;
  std::vector<SpeedRow> rows;
  auto add = [&](Result<SpeedRow> row) -> Status {
    if (!row.ok()) return row.status();
    if (on_row) on_row(*row);
    rows.push_back(*row);
    return Status();
  };
  for (const CacheOptions& cache : caches) {
    for (uint32_t n_tokens : options.prefill_tokens) {
      if (Status s = add(run.Prefill(n_tokens, cache)); !s.ok()) return s;
    }
    for (uint32_t depth : run.depths()) {
      for (uint32_t batch : options.batches) {
        Status s = add(run.Decode(depth, batch, cache));
        if (!s.ok()) return s;
      }
    }
  }
  return rows;
}

}  // namespace lkv
