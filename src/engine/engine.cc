#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/stopwatch.h"
#include "engine/admission.h"
#include "engine/engine_state.h"

namespace lkv {
namespace {

// False when one of them is NaN or infinite. 5 us for 50,000.
bool AreNumbers(std::span<const float> values) {
  constexpr size_t kSums = 16;  // for the compiler to use vectors
  float zeros[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= values.size(); i += kSums) {
    for (size_t j = 0; j < kSums; ++j) zeros[j] += values[i + j] * 0.0f;
  }
  float total = 0;
  for (; i < values.size(); ++i) total += values[i] * 0.0f;
  for (float zero : zeros) total += zero;
  return total == 0;
}

// Decode times are stored without allocating up to this many; a longer text
// grows the array now and then.
constexpr size_t kReservedSteps = 4096;

double Ratio(double n, double whole) { return whole > 0 ? n / whole : 0; }

// What one turn has produced so far.
class TurnText {
 public:
  TurnText(const Tokenizer& tokenizer,
           const std::function<bool(std::string_view)>& on_text)
      : tokenizer_(tokenizer), on_text_(on_text) {}

  // False when the listener wants no more.
  bool Add(int32_t token) {
    tokens_.push_back(token);
    return Show(stream_.Push(
        tokenizer_.TokenBytes(token, Tokenizer::Special::kAsText)));
  }

  Generation Finish(StopReason reason, const Sequence& sequence) {
    Show(stream_.Finish());
    Generation generation;
    generation.tokens = std::move(tokens_);
    generation.text = std::move(text_);
    generation.stop_reason = reason;
    generation.kv = sequence.stats();
    generation.times = sequence.times();
    return generation;
  }

 private:
  bool Show(const std::string& text) {
    if (text.empty()) return true;
    text_ += text;
    return !on_text_ || on_text_(text);
  }

  const Tokenizer& tokenizer_;
  const std::function<bool(std::string_view)>& on_text_;
  Utf8Stream stream_;
  std::vector<int32_t> tokens_;
  std::string text_;
};

}  // namespace

double StepTimes::PrefillRate() const {
  return Ratio(prefill_tokens, prefill_s);
}

double StepTimes::DecodeRate() const {
  return Ratio(static_cast<double>(step_us.size()), decode_us * 1e-6);
}

double StepTimes::PolicyShare() const { return Ratio(policy_us, decode_us); }

Sequence::Sequence(std::unique_ptr<State> state) : state_(std::move(state)) {}

Sequence::~Sequence() {
  state_->engine->cache->RemoveSequence(state_->id);
  std::erase(state_->engine->sequences, state_.get());
}

Status Sequence::Prefill(std::span<const int32_t> tokens,
                         const std::function<void(uint32_t)>& progress,
                         const std::function<bool()>& cancelled) {
  Status status = Read(tokens, progress, cancelled);
  if (!status.ok() || !state_->cut.has_value()) return status;
  const Stopwatch watch;
  status = CutDown(cancelled);
  state_->times.prefill_s += watch.Seconds();
  state_->broken = !status.ok();
  return status;
}

Status Sequence::Read(std::span<const int32_t> tokens,
                      const std::function<void(uint32_t)>& progress,
                      const std::function<bool()>& cancelled) {
  CHECK(!tokens.empty() && !state_->broken);
  CHECK(tokens.size() <= state_->max_tokens - n_tokens());
  Engine::State& engine = *state_->engine;
  if (Status s = engine.CheckUsable(); !s.ok()) return s;
  // It is asked within a step, when the sequence cannot be used.
  const std::function<bool()> is_stopped = [&] {
    state_->broken = true;
    const bool stops = cancelled();
    state_->broken = false;
    return stops;
  };
  size_t done = 0;
  while (done < tokens.size()) {
    const uint32_t wanted = static_cast<uint32_t>(tokens.size() - done);
    const uint32_t n = std::min(engine.cache->ChunkTokens(state_->id, wanted),
                                engine.executor->max_step_tokens());
    CHECK(n > 0 && n <= wanted);
    const bool last = n == wanted;

    engine.entries.assign(1, {state_->id, n});
    engine.positions.resize(n);
    for (uint32_t i = 0; i < n; ++i) {
      engine.positions[i] = n_tokens() + i;
    }
    engine.logit_rows.clear();
    if (last) engine.logit_rows.push_back(n - 1);
    const StepBatch batch{tokens.subspan(done, n), engine.entries,
                          engine.positions, engine.logit_rows};
    std::span<float> logits;
    if (last) logits = state_->logits;
    const Stopwatch step;
    Status status =
        engine.executor->Step(batch, *engine.cache, logits,
                              cancelled ? is_stopped : std::function<bool()>());
    state_->times.prefill_s += step.Seconds();
    if (!status.ok()) {
      state_->broken = true;
      return status;
    }
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(done);
    state_->tokens.insert(state_->tokens.end(), begin, begin + n);
    done += n;
    state_->times.prefill_tokens += n;
    if (progress) progress(static_cast<uint32_t>(done));
  }
  return Status();
}

Status Sequence::Decode(int32_t token) {
  Sequence* const self = this;
  return Engine::DecodeBatch(*state_->engine, {&self, 1}, {&token, 1});
}

std::span<const float> Sequence::logits() const { return state_->logits; }

Status Sequence::CheckWhole() const { return state_->CheckWhole(); }

std::span<const int32_t> Sequence::tokens() const { return state_->tokens; }

uint32_t Sequence::n_tokens() const { return state_->n_tokens(); }

uint32_t Sequence::max_tokens() const { return state_->max_tokens; }

SequenceStats Sequence::stats() const {
  SequenceStats stats = state_->engine->cache->Stats(state_->id);
  if (state_->cut.has_value()) stats.budget_bytes = state_->cut->budget_bytes;
  stats.resident_bytes_max =
      std::max(stats.resident_bytes_max, state_->reread_bytes_max);
  return stats;
}

const StepTimes& Sequence::times() const { return state_->times; }

Status Sequence::ShrinkBudget(const Budget& budget, uint32_t room_tokens) {
  return state_->engine->cache->ShrinkBudget(state_->id, budget, room_tokens);
}
std::vector<uint32_t> Sequence::ResidentPositions(uint32_t layer,
                                                  uint32_t kv_head) const {
  return state_->engine->cache->ResidentPositions(state_->id, layer, kv_head);
}

std::vector<PageExplanation> Sequence::Explain(uint32_t layer,
                                               uint32_t kv_head) const {
  return state_->engine->cache->Explain(state_->id, layer, kv_head);
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() = default;

const Tokenizer& Engine::tokenizer() const { return *state_->tokenizer; }

const Architecture& Engine::architecture() const {
  return state_->executor->architecture();
}

uint64_t Engine::weight_bytes() const {
  return state_->executor->weight_bytes();
}

const std::string& Engine::model_fingerprint() const {
  return state_->model_fingerprint;
}
const std::vector<std::string>& Engine::weight_notes() const {
  return state_->weight_notes;
}

uint32_t Engine::n_threads() const { return state_->team->n_threads(); }

uint32_t Engine::max_step_tokens() const {
  return state_->executor->max_step_tokens();
}

void Engine::SetObserver(AttentionObserver* observer) {
  state_->observer = observer;
  state_->SetCacheObserver(observer);
}

void Sequence::State::Begin(const SequenceOptions& options) {
  network = options.predictor;
  text_tokens = options.prompt_tokens + options.max_new_tokens;
  max_tokens = std::max(text_tokens, options.max_tokens);
  logits.resize(engine->executor->architecture().vocab_size);
  tokens.reserve(text_tokens);
  times.step_us.reserve(
      std::min<size_t>(options.max_new_tokens, kReservedSteps));
}

Status Sequence::State::CheckWhole() const {
  if (!broken) return Status();
  return InvalidArgument(
      "sequence: was stopped within a step; start a new one");
}

Status Engine::State::CheckUsable() const {
  if (!cache_is_torn) return Status();
  return OutOfMemory(
      "engine: memory ran out while its cache grew; free some or raise the "
      "limits of this process (ulimit -v, -d), then open the model again");
}

Status Engine::State::CheckSequencesFit() const {
  MemoryNeed need;
  // What earlier steps have filled of it counts twice: 10 MiB for a text of
  // 8,192 tokens.
  need.working_bytes = cache->scratch_bytes();
  uint64_t n_tokens = 0;
  for (const Sequence::State* sequence : sequences) {
    need.kv_bytes += cache->Stats(sequence->id).growth_bytes;
    n_tokens += sequence->text_tokens;
  }
  // Their addresses are mapped already.
  return CheckFits("sequences of " + std::to_string(n_tokens) + " tokens", need,
                   ReadMemoryLeft());
}

Result<std::unique_ptr<Sequence>> Engine::Start(
    const SequenceOptions& options) {
  if (Status s = CheckLength(architecture(), state_->ctx_tokens, options);
      !s.ok()) {
    return s;
  }
  if (Status s = state_->CheckUsable(); !s.ok()) return s;
  return CatchRefusedMemory(
      "sequence", [&]() -> Result<std::unique_ptr<Sequence>> {
        Result<Admission> admission = state_->Complete(options);
        if (!admission.ok()) return admission.status();
        auto state = std::make_unique<Sequence::State>();
        state->engine = state_.get();
        state->Begin(admission->options);
        state->asked = options.cache;
        state->cut = std::move(admission->cut);
        return Admit(std::move(state), [&] {
          return state_->cache->AddSequence(admission->options);
        });
      });
}

Result<std::unique_ptr<Sequence>> Engine::Fork(const Sequence& sequence) {
  return Fork(*state_, sequence);
}

Result<std::unique_ptr<Sequence>> Engine::Fork(State& engine,
                                               const Sequence& sequence) {
  const Sequence::State& parent = *sequence.state_;
  CHECK(parent.engine == &engine);
  if (Status s = engine.CheckUsable(); !s.ok()) return s;
  if (Status s = parent.CheckWhole(); !s.ok()) return s;
  if (parent.cut.has_value()) {
    return InvalidArgument(
        "sequence: has not read the prompt that it is to read whole; fork it "
        "afterwards");
  }
  return CatchRefusedMemory(
      "sequence", [&]() -> Result<std::unique_ptr<Sequence>> {
        auto state = std::make_unique<Sequence::State>(parent);
        state->times = {};
        state->times.step_us.reserve(parent.times.step_us.capacity());
        return Admit(std::move(state),
                     [&] { return engine.cache->ForkSequence(parent.id); });
      });
}

Result<std::unique_ptr<Sequence>> Engine::Admit(
    std::unique_ptr<Sequence::State> state,
    const std::function<Result<SequenceId>()>& add_to_cache) {
  State& engine = *state->engine;
  engine.sequences.reserve(engine.sequences.size() + 1);
  Result<SequenceId> id = add_to_cache();
  if (!id.ok()) return id.status();
  state->id = *id;
  std::unique_ptr<Sequence> sequence(new Sequence(std::move(state)));
  engine.sequences.push_back(sequence->state_.get());
  if (Status s = engine.CheckSequencesFit(); !s.ok()) return s;
  return sequence;
}

Status Engine::DecodeBatch(std::span<Sequence* const> sequences,
                           std::span<const int32_t> tokens) {
  return CatchRefusedMemory(
      "batch", [&] { return DecodeBatch(*state_, sequences, tokens); });
}

Status Engine::DecodeBatch(State& engine, std::span<Sequence* const> sequences,
                           std::span<const int32_t> tokens) {
  CHECK(!sequences.empty() && sequences.size() == tokens.size());
  CHECK(sequences.size() <= engine.executor->max_step_tokens());
  if (Status s = engine.CheckUsable(); !s.ok()) return s;
  const size_t n = sequences.size();
  const size_t vocab_size = engine.executor->architecture().vocab_size;
  engine.entries.resize(n);
  engine.positions.resize(n);
  engine.logit_rows.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const Sequence::State& sequence = *sequences[i]->state_;
    CHECK(sequence.engine == &engine && !sequence.broken);
    CHECK(sequence.n_tokens() < sequence.max_tokens);
    engine.entries[i] = {sequence.id, 1};
    engine.positions[i] = sequence.n_tokens();
    engine.logit_rows[i] = static_cast<uint32_t>(i);
  }
  // One sequence takes its logits straight from the kernel; several get them
  // from a common block, a copy of 0.2 MB each.
  std::span<float> logits = sequences[0]->state_->logits;
  if (n > 1) {
    if (engine.batch_logits.size() < n * vocab_size) {
      engine.batch_logits.resize(n * vocab_size);
    }
    logits = {engine.batch_logits.data(), n * vocab_size};
  }

  const double policy_before = engine.executor->policy_seconds();
  const Stopwatch step;
  Status status = engine.executor->Step(
      {tokens, engine.entries, engine.positions, engine.logit_rows},
      *engine.cache, logits, {});
  const double step_us = step.Seconds() * 1e6;
  const double policy_us =
      (engine.executor->policy_seconds() - policy_before) * 1e6;

  for (size_t i = 0; i < n; ++i) {
    Sequence::State& sequence = *sequences[i]->state_;
    if (!status.ok()) {
      sequence.broken = true;
      continue;
    }
    sequence.tokens.push_back(tokens[i]);
    sequence.times.step_us.push_back(static_cast<float>(step_us));
    sequence.times.decode_us += step_us;
    sequence.times.policy_us += policy_us;
    if (n > 1) {
      std::copy_n(logits.begin() + i * vocab_size, vocab_size,
                  sequence.logits.begin());
    }
  }
  return status;
}

Result<Generation> Engine::Generate(
    const Request& request,
    const std::function<bool(std::string_view)>& on_text,
    const std::function<void(uint32_t)>& progress,
    const std::function<bool()>& cancelled) {
  if (request.prompt.empty()) {
    return InvalidArgument("prompt: is empty; give some text");
  }
  SequenceOptions options;
  options.cache = request.cache;
  options.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  options.max_new_tokens = request.max_new_tokens;
  options.pinned = request.pinned;
  Result<std::unique_ptr<Sequence>> sequence = Start(options);
  if (!sequence.ok()) return sequence.status();
  Turn turn;
  turn.prompt = request.prompt;
  turn.max_new_tokens = request.max_new_tokens;
  turn.ignore_eos = request.ignore_eos;
  turn.sampler = request.sampler;
  return Continue(**sequence, turn, on_text, progress, cancelled);
}

Result<Generation> Engine::Continue(
    Sequence& sequence, const Turn& turn,
    const std::function<bool(std::string_view)>& on_text,
    const std::function<void(uint32_t)>& progress,
    const std::function<bool()>& cancelled) {
  return CatchRefusedMemory("sequence", [&] {
    return RunTurn(sequence, turn, on_text, progress, cancelled);
  });
}

// Announces the turn, and takes the memory for it.
Status Engine::AdmitTurn(Sequence& sequence, const Turn& turn) {
  Sequence::State& state = *sequence.state_;
  const auto n_prompt = static_cast<uint32_t>(turn.prompt.size());
  if (Status s =
          state_->cache->AnnounceTurn(state.id, n_prompt, turn.max_new_tokens);
      !s.ok()) {
    return s;
  }
  const uint32_t text_tokens =
      std::exchange(state.text_tokens,
                    std::max(state.text_tokens, state.n_tokens() + n_prompt +
                                                    turn.max_new_tokens));
  Status status = state_->CheckSequencesFit();
  if (!status.ok()) {
    state.text_tokens = text_tokens;
    return status;
  }
  state.tokens.reserve(state.text_tokens);
  return {};
}

Result<Generation> Engine::RunTurn(
    Sequence& sequence, const Turn& turn,
    const std::function<bool(std::string_view)>& on_text,
    const std::function<void(uint32_t)>& progress,
    const std::function<bool()>& cancelled) {
  if (turn.prompt.empty()) {
    return InvalidArgument("prompt: is empty; give some text");
  }
  if (Status s = sequence.state_->CheckWhole(); !s.ok()) return s;
  const uint64_t n_wanted = turn.prompt.size() + uint64_t{turn.max_new_tokens};
  const uint32_t n_left = sequence.max_tokens() - sequence.n_tokens();
  if (n_wanted > n_left) {
    return InvalidArgument(
        "context: " + std::to_string(turn.prompt.size()) +
        " prompt tokens and " + std::to_string(turn.max_new_tokens) +
        " new ones do not fit the " + std::to_string(n_left) +
        " left; start a new sequence");
  }
  Result<std::unique_ptr<Sampler>> sampler =
      Sampler::Create(*state_->tokenizer, turn.sampler);
  if (!sampler.ok()) return sampler.status();
  if (Status s = AdmitTurn(sequence, turn); !s.ok()) return s;
  // Whether they were read, restored or drawn in an earlier turn.
  for (int32_t token : sequence.tokens()) (*sampler)->Accept(token);
  for (int32_t token : turn.prompt) (*sampler)->Accept(token);

  TurnText reply(*state_->tokenizer, on_text);
  Status status = sequence.Prefill(turn.prompt, progress, cancelled);
  if (status.code() == StatusCode::kCancelled) {
    return reply.Finish(StopReason::kCancelled, sequence);
  }
  if (!status.ok()) return status;

  for (uint32_t i = 0; i < turn.max_new_tokens; ++i) {
    if (cancelled && cancelled()) {
      return reply.Finish(StopReason::kCancelled, sequence);
    }
    if (!AreNumbers(sequence.logits())) {
      return Corrupt(
          "model: its logits at position " +
          std::to_string(sequence.n_tokens() - 1) +
          " are no numbers, its weights overflow; fetch or convert it again");
    }
    if (turn.ignore_eos) {
      for (int32_t token : state_->end_tokens) {
        sequence.state_->logits[token] =
            -std::numeric_limits<float>::infinity();
      }
    }
    const int32_t token = (*sampler)->Sample(sequence.logits());
    if (state_->tokenizer->IsEndOfGeneration(token)) {
      return reply.Finish(StopReason::kEndOfText, sequence);
    }
    if (!reply.Add(token)) {
      return reply.Finish(StopReason::kCancelled, sequence);
    }
    // The last token's logits would be read by nobody.
    if (i + 1 == turn.max_new_tokens) break;
    if (Status s = sequence.Decode(token); !s.ok()) return s;
  }
  return reply.Finish(StopReason::kLength, sequence);
}

}  // namespace lkv
