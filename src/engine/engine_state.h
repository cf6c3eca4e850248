// What an open engine holds: the parts that wiring.cc puts together and the
// loop in engine.cc drives through their interfaces. Private to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "cache/paged_kv_cache.h"
#include "engine/engine.h"
#include "engine/predictors.h"
#include "model/executor.h"
#include "policy/repeat_policy.h"
#include "session/fingerprint.h"
#include "text/tokenizer.h"

namespace lkv {

// What becomes of a sequence whose prompt is read whole.
struct PromptCut {
  Budget budget;
  uint64_t budget_bytes = 0;  // what it comes to
  // What the policy ranks by, filled by a second reading; nullptr: it needs
  // none.
  std::shared_ptr<RereadScores> reread;
};

// How a sequence begins.
struct Admission {
  SequenceOptions options;
  std::optional<PromptCut> cut;
};

struct Sequence::State {
  Engine::State* engine = nullptr;
  SequenceId id{};
  CacheOptions asked;           // before anything of it was settled
  std::vector<int32_t> tokens;  // by position
  // What its cache's policy forecasts by, if by a network.
  std::shared_ptr<const HistoryNetwork> network;
  uint32_t max_tokens = 0;
  uint32_t text_tokens = 0;       // announced so far
  bool broken = false;            // the cache holds half a step: no more tokens
  std::optional<PromptCut> cut;   // still to be made
  uint64_t reread_bytes_max = 0;  // of KV, while the prompt was read twice
  std::vector<float> logits;      // [vocab_size]
  StepTimes times;

  uint32_t n_tokens() const { return static_cast<uint32_t>(tokens.size()); }
  // Lengths, and the room for them.
  void Begin(const SequenceOptions& options);
  Status CheckWhole() const;  // kInvalidArgument when broken
};

struct Engine::State {
  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<PagedKvCache> cache;
  std::unique_ptr<Predictors> predictors;

  uint32_t ctx_tokens = 0;          // longest sequence
  std::vector<int32_t> end_tokens;  // all that end a text
  std::string model_fingerprint;
  std::string model_path;
  // What keys and values depend on: a sequence of another engine is of use
  // here if its own are the same. Reads all weights once more, the first time
  // (0.1 s a gigabyte from the page cache). kCorrupt: the file has changed.
  Result<Fingerprint> KvFingerprint();
  Fingerprint kv_fingerprint;  // but for the checksum of the weights
  std::optional<uint32_t> weights_crc;
  std::vector<std::string> weight_notes;
  std::vector<Sequence::State*> sequences;  // that live

  // Arguments of the step under way, kept so that a decode step allocates
  // nothing.
  std::vector<StepEntry> entries;
  std::vector<uint32_t> positions;
  std::vector<uint32_t> logit_rows;
  std::vector<float> batch_logits;  // [sequences of the batch, vocab_size]

  AttentionObserver* observer = nullptr;  // set from outside
  // True after the cache ran out of memory while it grew for an observer: its
  // parts no longer fit each other, and no step may run.
  bool cache_is_torn = false;
  Status CheckUsable() const;  // kOutOfMemory when cache_is_torn

  // With what `cache.predictor` names, where the policy wants one, and with
  // room for a prompt that is read whole.
  Result<Admission> Complete(const SequenceOptions& options);
  // What CutDown will do. kInvalidArgument: a budget that could not be kept, or
  // no room for a second reading.
  Status PrepareCut(Admission& admission);

  // Should there be no memory for it, the cache is torn.
  void SetCacheObserver(AttentionObserver* observer);

  // kOutOfMemory unless all sequences can fill their budgets, or hold the texts
  // announced, in the memory that the machine leaves.
  Status CheckSequencesFit() const;
};

}  // namespace lkv
