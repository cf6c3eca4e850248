// Engine: a loaded model with its cache, and the loop that turns a request
// into tokens. `wiring.cc` names the concrete executor and cache.
//
// Thread rule: one caller; the engine's own thread team works inside the calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/kv_cache.h"
#include "cache/page_explanation.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"
#include "model/architecture.h"
#include "policy/repeat_policy.h"
#include "text/sampler.h"
#include "text/tokenizer.h"

namespace lkv {

struct EngineOptions {
  std::string model_path;
  uint32_t n_threads = 0;  // 0: the cores this process may use
  ActivationPrecision activations = ActivationPrecision::kAuto;
  // Longest sequence; 0: what each request needs, up to the trained length.
  uint32_t ctx_tokens = 0;
  bool allow_beyond_trained = false;
  // What the first sequence will be, for whoever knows it from the vocabulary
  // alone: its length and budget are then checked, and its memory added to that
  // of the weights, before these are loaded. `ctx_tokens`: the longest it may
  // be. Empty: Start is the first to know.
  std::function<Result<SequenceOptions>(const Tokenizer&, uint32_t ctx_tokens)>
      first_sequence = {};
};

struct StepTimes {
  std::vector<float> step_us;  // wall time of every decode step
  uint32_t prefill_tokens = 0;
  double prefill_s = 0;
  double policy_us = 0;  // part of the decode steps spent in BeginStep, EndStep
  double decode_us = 0;  // all decode steps

  // Tokens per second, and the policy's share of decoding; 0 when nothing was
  // run.
  double PrefillRate() const;
  double DecodeRate() const;
  double PolicyShare() const;
};

// One running context: prompt in, logits out. The level at which evaluation
// and benchmarks drive the model. Must not outlive its engine.
class Sequence {
 public:
  ~Sequence();  // gives the cache's memory back
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Runs the tokens through the model in chunks and leaves the logits of the
  // last one. Requires at least one token and room for all. `progress` (may be
  // empty) is called after every chunk with the tokens done. Returns
  // kCancelled when `cancelled` (may be empty) says so; the sequence takes no
  // more tokens after that, its stats stay readable. The first call brings the
  // prompt that CacheOptions::reading speaks of: one to be read whole is cut
  // down to the budget at its end.
  Status Prefill(std::span<const int32_t> tokens,
                 const std::function<void(uint32_t)>& progress,
                 const std::function<bool()>& cancelled);
  // Runs one token; the logits of it are in logits() afterwards.
  Status Decode(int32_t token);
  // From now on it keeps inside a smaller budget (KvCache::ShrinkBudget).
  Status ShrinkBudget(const Budget& budget, uint32_t room_tokens);
  // [vocab_size], of the newest token; zeros before the first.
  std::span<const float> logits() const;
  // What it has read and been given, by position.
  std::span<const int32_t> tokens() const;
  uint32_t n_tokens() const;
  // kInvalidArgument once it was stopped within a step: it takes no more
  // tokens.
  Status CheckWhole() const;
  // Most tokens it may hold: what its admission asked for.
  uint32_t max_tokens() const;
  // budget_bytes is what it will keep to, once its prompt has been read.
  SequenceStats stats() const;
  const StepTimes& times() const;
  std::vector<uint32_t> ResidentPositions(uint32_t layer,
                                          uint32_t kv_head) const;
  // Why each resident page of a lane is there, in position order.
  std::vector<PageExplanation> Explain(uint32_t layer, uint32_t kv_head) const;

 private:
  friend class Engine;
  friend class Sessions;
  struct State;
  // Prefill without what follows a prompt.
  Status Read(std::span<const int32_t> tokens,
              const std::function<void(uint32_t)>& progress,
              const std::function<bool()>& cancelled);
  // What it has read is its prompt, and was read whole.
  Status CutDown(const std::function<bool()>& cancelled);
  explicit Sequence(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

enum class StopReason { kLength, kEndOfText, kCancelled };

// What to add to a sequence: the next part of the prompt, then a reply.
struct Turn {
  std::span<const int32_t> prompt;  // at least one token
  uint32_t max_new_tokens = 256;
  // True: tokens that end a text cannot be drawn, so the length decides.
  bool ignore_eos = false;
  SamplerOptions sampler;
};

struct Request {
  std::vector<int32_t> prompt;
  std::vector<PositionRange> pinned;
  uint32_t max_new_tokens = 256;
  bool ignore_eos = false;
  CacheOptions cache;
  SamplerOptions sampler;
};

struct Generation {
  std::vector<int32_t> tokens;  // generated, without the end token
  std::string text;
  StopReason stop_reason = StopReason::kLength;
  SequenceStats kv;
  StepTimes times;
};

class Engine {
 public:
  // Loads the model. kOutOfMemory when weights, working memory and first
  // sequence do not fit the machine or the limits of this process: said before
  // loading, from the sizes, or when the system refuses memory all the same.
  static Result<std::unique_ptr<Engine>> Open(const EngineOptions& options);
  ~Engine();

  const Tokenizer& tokenizer() const;
  const Architecture& architecture() const;
  // Tells models apart (GgufFile::Fingerprint).
  const std::string& model_fingerprint() const;
  uint64_t weight_bytes() const;
  // One line per kind of tensor whose values changed on the way into the
  // kernels' tiles (model/weights.h); empty when all are the file's own.
  const std::vector<std::string>& weight_notes() const;
  uint32_t n_threads() const;
  // The most tokens of one step: sequences of a batch, tokens of a chunk.
  uint32_t max_step_tokens() const;

  // Admits a sequence: checks its longest length against the context, the
  // budget against its floor, and the memory that its text will fill against
  // what the machine and the other sequences leave (kOutOfMemory).
  Result<std::unique_ptr<Sequence>> Start(const SequenceOptions& options);

  // Another sequence in the state of one, with its logits but times of its own:
  // both go on from the same text, each as if it were alone, and share the
  // memory of that text. O(pages of its longest text); nothing is read again.
  // kInvalidArgument when the sequence was stopped within a step, kOutOfMemory
  // as for Start; the sequence can be used on in either case.
  Result<std::unique_ptr<Sequence>> Fork(const Sequence& sequence);

  // One token for each of several sequences, in one pass over the weights;
  // tokens[i] continues sequences[i]. The step's time counts in full for each.
  Status DecodeBatch(std::span<Sequence* const> sequences,
                     std::span<const int32_t> tokens);

  // Prompt to text, on a sequence of its own. `on_text` gets whole UTF-8
  // characters as they come and returns false to stop; `progress` gets the
  // prompt tokens done; `cancelled` is asked once per layer in prefill and once
  // per token. Each may be empty. Being cancelled is not a failure: what was
  // generated until then is returned.
  Result<Generation> Generate(
      const Request& request,
      const std::function<bool(std::string_view)>& on_text,
      const std::function<void(uint32_t)>& progress,
      const std::function<bool()>& cancelled);
  // The same as the next turn of a sequence; stats and times are those of the
  // whole sequence. A turn that makes the sequence longer than was expected at
  // its admission and by earlier turns raises a budget given as a share, if the
  // machine has that memory (kOutOfMemory). The
  // last token drawn is not in the cache yet: put it in front of the next
  // turn's prompt.
  Result<Generation> Continue(
      Sequence& sequence, const Turn& turn,
      const std::function<bool(std::string_view)>& on_text,
      const std::function<void(uint32_t)>& progress,
      const std::function<bool()>& cancelled);

  // Has the model read `text` once more behind itself and keeps what every
  // token of the first reading got then: what policy `repeat` ranks by, and
  // what predictors learn from. `sequence` has read `text` alone, keeps
  // everything and may be twice as long (max_tokens); afterwards it has read it
  // twice. `scores` has an entry for every token of every lane. Whoever
  // observes the engine sees nothing of it. Costs as much as reading a text of
  // this length behind it with every query observed: 8 s for 3,072 tokens.
  // kCancelled when `cancelled` (may be empty) says so.
  Status Reread(Sequence& sequence, std::span<const int32_t> text,
                RereadScores& scores, const std::function<bool()>& cancelled);

  // Watches the attention of every sequence; nullptr = none. Should there be no
  // memory for it, the next step says so (kOutOfMemory).
  void SetObserver(AttentionObserver* observer);

  struct State;  // engine_state.h

 private:
  friend class Sequence;
  friend class Sessions;
  // Completes `state` with what add_to_cache returns.
  static Result<std::unique_ptr<Sequence>> Admit(
      std::unique_ptr<Sequence::State> state,
      const std::function<Result<SequenceId>()>& add_to_cache);
  static Result<std::unique_ptr<Sequence>> Fork(State& engine,
                                                const Sequence& sequence);
  static Status Reread(State& engine, Sequence& sequence,
                       std::span<const int32_t> text, RereadScores& scores,
                       const std::function<bool()>& cancelled);
  Status AdmitTurn(Sequence& sequence, const Turn& turn);
  Result<Generation> RunTurn(
      Sequence& sequence, const Turn& turn,
      const std::function<bool(std::string_view)>& on_text,
      const std::function<void(uint32_t)>& progress,
      const std::function<bool()>& cancelled);
  static Status DecodeBatch(State& engine, std::span<Sequence* const> sequences,
                            std::span<const int32_t> tokens);

  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lkv
