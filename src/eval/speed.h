// Speed of decoding and of prefill over depth, budget, batch and KV type.
//
// The tokens are given, not drawn, so every run does the same work: from a
// text, or pseudo-random ids where only speed is asked. Before the first row
// the model is warmed up once; beside each row stands what a plain read of
// memory reached at that moment.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/engine.h"
#include "eval/step_percentiles.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

struct SpeedOptions {
  // Decode rows: every combination of these, gen_tokens steps each.
  std::vector<uint32_t> depths = {0, 2048, 8192};  // tokens cached before
  std::vector<uint32_t> batches = {1};             // sequences per step
  // The sequences of a batch are forks of one; otherwise each reads a prompt of
  // its own.
  bool shared_prompt = false;
  uint32_t gen_tokens = 128;
  // Prefill rows: every combination with budgets and kv_types.
  std::vector<uint32_t> prefill_tokens = {512, 2048, 8192};

  std::vector<Budget> budgets = {Budget{}};
  std::vector<KvTypeName> kv_types = {KvTypeName::kF16};
  CacheOptions cache;         // the policy; its budget and type are replaced
  std::vector<int32_t> text;  // teacher-forced, repeated as needed; empty:
                              // pseudo-random ids
};

struct SpeedRow {
  enum class Kind { kDecode, kPrefill };
  Kind kind = Kind::kDecode;
  uint32_t depth_tokens = 0;  // kPrefill: length of the prompt
  uint32_t batch = 1;
  bool shared_prompt = false;  // of the batch
  Budget budget;
  KvTypeName kv_type = KvTypeName::kF16;
  uint32_t n_threads = 0;
  double tokens_per_second = 0;  // of all sequences together
  StepPercentiles step;          // kDecode: wall time
  StepPercentiles step_cpu;      // kDecode: of all threads together
  double policy_share = 0;       // kDecode: of the step, evicting and scoring
  uint64_t resident_bytes = 0;   // of one sequence at the end
  // kDecode: weights once, and the cache of every sequence, in the last step.
  uint64_t read_bytes_per_step = 0;
  // A plain read with the same threads, just before the row.
  double stream_gb_s = 0;

  // kDecode: how fast a step reads, as a share of the plain read.
  double ShareOfStream() const {
    const double steps_per_second = tokens_per_second / batch;
    return static_cast<double>(read_bytes_per_step) * steps_per_second * 1e-9 /
           stream_gb_s;
  }
};

// Needs an engine opened with allow_beyond_trained when depth plus gen_tokens
// exceeds the trained length. `on_row` (may be empty) sees each row as it is
// measured.
Result<std::vector<SpeedRow>> MeasureSpeed(
    Engine& engine, const SpeedOptions& options,
    const std::function<void(const SpeedRow&)>& on_row,
    const std::function<bool()>& cancelled);

}  // namespace lkv
