// The demonstration: what a KV budget costs and saves on one text, by policy.
//
// Each policy reads the first part of the text and is then fed the rest token
// by token (teacher-forced), so that all see the same; speeds come from those
// runs. A last, untimed run with the full cache weighs what they kept (hit
// rates) and compares predictions (fidelity). Then each answers a question
// about the text. With the defaults and SmolLM2-135M: under two minutes on two
// cores.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "eval/fidelity.h"
#include "eval/step_percentiles.h"
#include "lookaheadkv/hit_rates.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

// The text that comes with the program, 4,500 tokens, and a question about a
// fact that it states once, early.
std::string_view DemoText();
std::string_view DemoQuestion();

struct DemoOptions {
  std::string text = std::string(DemoText());
  std::string question = std::string(DemoQuestion());  // empty: none is asked
  uint32_t context_tokens = 4096;
  uint32_t forced_tokens = 256;
  uint32_t answer_tokens = 40;
  // Of every row but the first, which is the full cache; named again, a policy
  // gets no second row.
  std::vector<PolicyName> policies = {PolicyName::kLru, PolicyName::kLookahead};
  // One row more for lookahead: the text is read whole, then cut down.
  bool shows_whole_reading = true;
  CacheOptions cache;  // policy is replaced
};

struct DemoRow {
  PolicyName policy = PolicyName::kFull;
  bool reads_whole = false;  // the text, before it is cut down to the budget
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  StepPercentiles step;
  double policy_share = 0;  // of the decode time
  SequenceStats kv;
  HitRates hit;
  Fidelity fidelity;  // against the full cache with the same KV type
  std::string answer;
};

struct DemoReport {
  uint32_t context_tokens = 0;
  uint32_t forced_tokens = 0;
  uint64_t weight_bytes = 0;  // that every step reads
  std::vector<DemoRow> rows;  // full first
  // What another rounding of the same keys and values changes (bf16 instead of
  // f16, or the reverse): differences below it mean nothing.
  Fidelity noise_floor;
  // Why the question was not asked; empty when it was, or when there was none.
  std::string no_question;
};

// How far the demonstration has come.
struct DemoProgress {
  std::string_view what;  // what is under way: "full cache", "policy lru"
  uint64_t done_tokens = 0;
  uint64_t total_tokens = 0;  // of all runs
};

// Needs an engine with high activations for the fidelity to mean something
// (eval/fidelity.h). A shorter text is split in the same proportion. No
// question is asked of a model without a usable chat template, or when the
// whole text is longer than the model was trained for. `progress` may be empty.
// kInvalidArgument, before any work: a text that is too short for the split, a
// budget below what the policies need.
Result<DemoReport> RunDemo(
    Engine& engine, const DemoOptions& options,
    const std::function<void(const DemoProgress&)>& progress,
    const std::function<bool()>& cancelled);

}  // namespace lkv
