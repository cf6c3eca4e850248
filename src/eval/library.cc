// The public face (lookaheadkv/engine.h) over engine and evaluation.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/printable_text.h"
#include "engine/admission.h"
#include "engine/engine.h"
#include "engine/sessions.h"
#include "engine/transcript.h"
#include "eval/forced_run.h"
#include "eval/hit_rate.h"
#include "lookaheadkv/engine.h"
#include "options/option_table.h"
#include "text/chat_turn.h"

namespace lkv {
namespace {

SamplerOptions ToSamplerOptions(const GenerateOptions& options) {
  SamplerOptions sampler;
  sampler.temperature = options.temperature;
  sampler.top_k = options.top_k;
  sampler.top_p = options.top_p;
  sampler.min_p = options.min_p;
  sampler.repeat_penalty = options.repeat_penalty;
  sampler.seed = options.seed;
  sampler.grammar = options.grammar;
  return sampler;
}

Reply::Stop ToStop(StopReason reason) {
  switch (reason) {
    case StopReason::kLength:
      return Reply::Stop::kLength;
    case StopReason::kEndOfText:
      return Reply::Stop::kEndOfText;
    case StopReason::kCancelled:
      return Reply::Stop::kCancelled;
  }
  return Reply::Stop::kCancelled;
}

// True until the end of the scope.
class SetForNow {
 public:
  explicit SetForNow(bool& flag) : flag_(flag) { flag_ = true; }
  ~SetForNow() { flag_ = false; }
  SetForNow(const SetForNow&) = delete;
  SetForNow& operator=(const SetForNow&) = delete;

 private:
  bool& flag_;
};

double PerSecond(double n, double seconds) {
  return seconds > 0 ? n / seconds : 0;
}

}  // namespace

struct Model::State {
  std::unique_ptr<Engine> engine;
};

struct Session::State {
  // What one turn put into the cache.
  struct FedTurn {
    std::vector<int32_t> prefill;
    std::vector<int32_t> decode;
  };

  // A session without a sequence: one could not be admitted for its first
  // message. Nothing is lost, it has no text yet.
  Status AdmitIfNone();
  Status Admit(std::vector<PositionRange> pinned);
  Status Restore(const std::string& name);
  Result<std::vector<int32_t>> TokenizePrompt(std::string_view prompt,
                                              PromptForm form);
  Result<std::vector<int32_t>> TokenizeMessage(std::string_view message);
  Result<Reply> Generate(std::string_view prompt,
                         const GenerateOptions& options,
                         const TextCallback& on_text,
                         const CancelCallback& cancelled);

  Engine* engine = nullptr;
  SequenceOptions options;
  std::unique_ptr<Sequence> sequence;
  std::vector<FedTurn> turns;
  std::vector<ChatMessage> messages;  // of a chat, replies included
  std::vector<int32_t> pending;       // drawn, but not in the cache yet
  // A call is under way, from whose callbacks others may come.
  bool is_busy = false;
  Status CheckIdle() const {
    if (!is_busy) return Status();
    return InvalidArgument(
        "session: is generating; call it when Generate has returned");
  }
};

Status Session::State::AdmitIfNone() {
  return sequence == nullptr ? Admit({}) : Status();
}

Status Session::State::Admit(std::vector<PositionRange> pinned) {
  options.pinned = std::move(pinned);
  sequence.reset();  // gives its memory back first
  Result<std::unique_ptr<Sequence>> admitted = engine->Start(options);
  if (!admitted.ok()) return admitted.status();
  sequence = *std::move(admitted);
  return Status();
}

Result<std::vector<int32_t>> Session::State::TokenizePrompt(
    std::string_view prompt, PromptForm form) {
  if (form == PromptForm::kChat) return TokenizeMessage(prompt);
  return engine->tokenizer().Tokenize(
      prompt,
      turns.empty() ? Tokenizer::Start::kAsTrained : Tokenizer::Start::kNone,
      Tokenizer::Special::kAsText);
}

Result<std::vector<int32_t>> Session::State::TokenizeMessage(
    std::string_view message) {
  const Tokenizer& tokenizer = engine->tokenizer();
  std::vector<ChatMessage> all = messages;
  all.push_back({"user", std::string(message)});
  if (messages.empty()) {
    Result<TokenizedChat> chat =
        tokenizer.TokenizeChat(all, Tokenizer::Reply::kBegin);
    if (!chat.ok()) return chat.status();
    if (turns.empty() && options.cache.pin_system) {
      if (Status s = Admit(std::move(chat->pinned)); !s.ok()) return s;
    }
    return std::move(chat->tokens);
  }
  // The cache holds the chat up to the end of the last reply, in the tokens
  // that were drawn.
  return TokenizeNextTurn(tokenizer, all);
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Result<Reply> Session::State::Generate(std::string_view prompt,
                                       const GenerateOptions& options,
                                       const TextCallback& on_text,
                                       const CancelCallback& cancelled) {
  if (Status s = AdmitIfNone(); !s.ok()) return s;
  // A chat would admit a sequence anew for its first message.
  if (Status s = sequence->CheckWhole(); !s.ok()) return s;
  if (Status s =
          CheckTextLength(engine->tokenizer(), prompt, sequence->max_tokens());
      !s.ok()) {
    return s;
  }
  Result<std::vector<int32_t>> tokens = TokenizePrompt(prompt, options.form);
  if (!tokens.ok()) return tokens.status();
  std::vector<int32_t> feed = pending;
  feed.insert(feed.end(), tokens->begin(), tokens->end());

  Turn turn;
  turn.prompt = feed;
  turn.max_new_tokens = options.max_new_tokens;
  turn.ignore_eos = options.ignore_eos;
  turn.sampler = ToSamplerOptions(options);
  const uint32_t n_before = sequence->n_tokens();
  const StepTimes before = sequence->times();
  Result<Generation> generation =
      engine->Continue(*sequence, turn, on_text, {}, cancelled);
  if (!generation.ok()) return generation.status();

  const size_t n_fed = sequence->n_tokens() - n_before;
  if (n_fed >= feed.size()) {  // else cancelled within the prompt
    const std::span<const int32_t> drawn(generation->tokens);
    const auto decoded = drawn.first(n_fed - feed.size());
    const auto not_fed = drawn.subspan(decoded.size());
    pending.assign(not_fed.begin(), not_fed.end());
    turns.push_back({std::move(feed), {decoded.begin(), decoded.end()}});
    if (options.form == PromptForm::kChat) {
      messages.push_back({"user", std::string(prompt)});
      messages.push_back({"assistant", generation->text});
    }
  }

  const StepTimes& times = generation->times;
  Reply reply;
  reply.text = std::move(generation->text);
  reply.stop = ToStop(generation->stop_reason);
  reply.prompt_tokens = static_cast<uint32_t>(tokens->size());
  reply.generated_tokens = static_cast<uint32_t>(generation->tokens.size());
  reply.prefill_tokens_per_second =
      PerSecond(times.prefill_tokens - before.prefill_tokens,
                times.prefill_s - before.prefill_s);
  reply.decode_tokens_per_second = PerSecond(
      static_cast<double>(times.step_us.size() - before.step_us.size()),
      (times.decode_us - before.decode_us) * 1e-6);
  return reply;
}

Result<Reply> Session::Generate(std::string_view prompt,
                                const GenerateOptions& options,
                                const TextCallback& on_text,
                                const CancelCallback& cancelled) {
  CHECK(state_ != nullptr && "a session that was moved from");
  if (Status s = state_->CheckIdle(); !s.ok()) return s;
  const SetForNow busy(state_->is_busy);
  return CatchRefusedMemory("session", [&] {
    return state_->Generate(prompt, options, on_text, cancelled);
  });
}

Result<Session> Session::Fork() {
  CHECK(state_ != nullptr && "a session that was moved from");
  return CatchRefusedMemory("session", [&]() -> Result<Session> {
    if (Status s = state_->CheckIdle(); !s.ok()) return s;
    if (Status s = state_->AdmitIfNone(); !s.ok()) return s;
    Result<std::unique_ptr<Sequence>> sequence =
        state_->engine->Fork(*state_->sequence);
    if (!sequence.ok()) return sequence.status();
    auto fork = std::make_unique<State>();
    fork->engine = state_->engine;
    fork->options = state_->options;
    fork->sequence = *std::move(sequence);
    fork->turns = state_->turns;
    fork->messages = state_->messages;
    fork->pending = state_->pending;
    return Session(std::move(fork));
  });
}

SessionMemory Session::memory() const {
  CHECK(state_ != nullptr && "a session that was moved from");
  SessionMemory memory;
  if (state_->sequence == nullptr) return memory;
  const SequenceStats stats = state_->sequence->stats();
  memory.budget_bytes = stats.budget_bytes;
  memory.resident_bytes = stats.resident_bytes;
  memory.resident_bytes_max = stats.resident_bytes_max;
  memory.shared_bytes = stats.shared_bytes;
  memory.full_bytes = stats.full_bytes;
  memory.evicted_tokens = stats.evicted_tokens;
  return memory;
}

Status Session::Save(const std::string& name) {
  CHECK(state_ != nullptr && "a session that was moved from");
  return CatchRefusedMemory("session", [&]() -> Status {
    if (Status s = state_->CheckIdle(); !s.ok()) return s;
    if (Status s = state_->AdmitIfNone(); !s.ok()) return s;
    Transcript transcript;
    transcript.messages = state_->messages;
    transcript.uncached = state_->pending;
    for (const State::FedTurn& turn : state_->turns) {
      transcript.turns.push_back({static_cast<uint32_t>(turn.prefill.size()),
                                  static_cast<uint32_t>(turn.decode.size())});
    }
    auto sessions = Sessions::Open(state_->options.cache);
    if (!sessions.ok()) return sessions.status();
    return (*sessions)
        ->Save(*state_->engine, *state_->sequence, name,
               WriteTranscript(transcript))
        .status();
  });
}

Status Session::State::Restore(const std::string& name) {
  auto sessions = Sessions::Open(options.cache);
  if (!sessions.ok()) return sessions.status();
  auto note = (*sessions)->ReadNote(*engine, name);
  if (!note.ok()) return note.status();
  auto transcript = ReadTranscript(note->note);
  uint64_t n_fed = 0;
  if (transcript) {
    for (const Transcript::TurnLength& turn : transcript->turns) {
      n_fed += uint64_t{turn.n_read} + turn.n_generated;
    }
  }
  const std::vector<int32_t>& tokens = note->tokens;
  if (!note->is_of_model) {
    return InvalidArgument("session " + Quoted(name) +
                           ": was kept with another model; open that one");
  }
  if (!transcript || n_fed != tokens.size()) {
    return InvalidArgument("session " + Quoted(name) +
                           ": was not kept by Session::Save; name another");
  }
  if (tokens.size() > options.prompt_tokens) {
    return InvalidArgument("session " + Quoted(name) + ": has " +
                           std::to_string(tokens.size()) +
                           " tokens, more than max_tokens; raise it");
  }
  // Whatever comes next.
  std::vector<int32_t> text = tokens;
  text.push_back(0);
  auto beginning = (*sessions)->Begin(*engine, options, text, name);
  if (!beginning.ok()) return beginning.status();
  sequence = std::move(beginning->sequence);
  if (beginning->cached_tokens < tokens.size()) {
    Status status = sequence->Prefill(
        std::span(tokens).subspan(beginning->cached_tokens), {}, {});
    if (!status.ok()) return status;
  }
  auto next = tokens.begin();
  for (const Transcript::TurnLength& turn : transcript->turns) {
    FedTurn fed;
    fed.prefill.assign(next, next + turn.n_read);
    next += turn.n_read;
    fed.decode.assign(next, next + turn.n_generated);
    next += turn.n_generated;
    turns.push_back(std::move(fed));
  }
  messages = std::move(transcript->messages);
  pending = std::move(transcript->uncached);
  return {};
}

Result<HitRates> Session::MeasureHitRates() const {
  CHECK(state_ != nullptr && "a session that was moved from");
  const State& state = *state_;
  return CatchRefusedMemory("hit rates", [&]() -> Result<HitRates> {
    std::vector<ForcedPart> parts;
    for (const State::FedTurn& turn : state.turns) {
      parts.push_back({turn.prefill, turn.decode});
    }
    Result<std::vector<HitRates>> rates = lkv::MeasureHitRates(
        *state.engine, parts, {&state.options, 1}, HitRateOptions{});
    if (!rates.ok()) return rates.status();
    return (*rates)[0];
  });
}

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

Result<Model> Model::Open(const std::string& path,
                          const ModelOptions& options) {
  EngineOptions engine_options;
  engine_options.model_path = path;
  engine_options.n_threads = options.n_threads;
  engine_options.activations = options.activations;
  engine_options.allow_beyond_trained = options.allow_beyond_trained;
  Result<std::unique_ptr<Engine>> engine = Engine::Open(engine_options);
  if (!engine.ok()) return engine.status();
  auto state = std::make_unique<State>();
  state->engine = *std::move(engine);
  return Model(std::move(state));
}

Result<Session> Model::NewSession(const SessionOptions& options) const {
  CHECK(state_ != nullptr && "a model that was moved from");
  if (Status s = CheckOptions(options.cache); !s.ok()) return s;
  auto state = std::make_unique<Session::State>();
  state->engine = state_->engine.get();
  state->options.cache = options.cache;
  state->options.prompt_tokens =
      options.max_tokens > 0 ? options.max_tokens : trained_context_tokens();
  if (Status s = state->Admit({}); !s.ok()) return s;
  return Session(std::move(state));
}

Result<Session> Model::RestoreSession(const std::string& name,
                                      const SessionOptions& options) const {
  CHECK(state_ != nullptr && "a model that was moved from");
  if (Status s = CheckOptions(options.cache); !s.ok()) return s;
  return CatchRefusedMemory("session", [&]() -> Result<Session> {
    auto state = std::make_unique<Session::State>();
    state->engine = state_->engine.get();
    state->options.cache = options.cache;
    state->options.prompt_tokens =
        options.max_tokens > 0 ? options.max_tokens : trained_context_tokens();
    if (Status s = state->Restore(name); !s.ok()) return s;
    return Session(std::move(state));
  });
}

uint64_t Model::weight_bytes() const {
  CHECK(state_ != nullptr && "a model that was moved from");
  return state_->engine->weight_bytes();
}

uint32_t Model::trained_context_tokens() const {
  CHECK(state_ != nullptr && "a model that was moved from");
  return state_->engine->architecture().trained_context_tokens;
}

}  // namespace lkv
