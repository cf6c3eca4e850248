#include "cli/conversation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/printable_text.h"
#include "engine/admission.h"
#include "engine/transcript.h"
#include "session/token_chain.h"
#include "text/chat_turn.h"

namespace lkv::cli {
namespace {

Status RefuseWords(const std::string& n_needed, uint32_t n_max) {
  return InvalidArgument("these words need " + n_needed + " tokens of " +
                         std::to_string(n_max) +
                         "; say less, or begin again with a larger --ctx");
}

}  // namespace

void Conversation::SetLengths(size_t n_prompt, SequenceOptions* options) const {
  options->prompt_tokens =
      static_cast<uint32_t>(std::min<size_t>(options_.max_tokens, n_prompt));
  options->max_new_tokens = std::min(
      options_.max_reply_tokens, options_.max_tokens - options->prompt_tokens);
}

Result<Conversation::Admission> Conversation::PrepareAdmission(
    std::span<const ChatMessage> said,
    const std::function<bool()>& cancelled) const {
  std::vector<ChatMessage> messages;
  if (!options_.system.empty()) messages.push_back({"system", options_.system});
  messages.insert(messages.end(), said.begin(), said.end());
  auto chat = engine_.tokenizer().TokenizeChat(
      messages, Tokenizer::Reply::kBegin, cancelled);
  if (!chat.ok()) return chat.status();

  Admission admission;
  SequenceOptions& options = admission.options;
  options.cache = options_.cache;
  // More than fits is refused when the turn begins.
  SetLengths(chat->tokens.size(), &options);
  options.max_tokens = options_.max_tokens;
  if (options_.cache.pin_system) options.pinned = std::move(chat->pinned);
  admission.tokens = std::move(chat->tokens);
  return admission;
}

Status Conversation::Check() const {
  const std::vector<ChatMessage> greeting = {{"user", "Hello."}};
  const auto admission = PrepareAdmission(greeting, {});
  if (!admission.ok()) return admission.status();
  if (Status s = engine_.Start(admission->options).status(); !s.ok()) return s;
  return Sampler::Create(engine_.tokenizer(), options_.sampler).status();
}

Result<std::vector<int32_t>> Conversation::BeginSequence(const Hooks& hooks) {
  auto admission = PrepareAdmission(messages_, hooks.cancelled);
  if (!admission.ok()) return admission.status();
  SequenceOptions& options = admission->options;
  std::vector<int32_t> text = std::move(admission->tokens);
  if (!tokens_.empty()) {
    // The same tokens as before: those of a reply are not always what its text
    // comes to. Pinned are places of the text as it would be otherwise.
    auto turn =
        TokenizeNextTurn(engine_.tokenizer(), messages_, hooks.cancelled);
    if (!turn.ok()) return turn.status();
    std::vector<int32_t> exact = tokens_;
    exact.insert(exact.end(), turn->begin(), turn->end());
    const uint32_t n_equal = CommonTokens(exact, text);
    std::erase_if(options.pinned, [&](const PositionRange& range) {
      return range.end > n_equal;
    });
    text = std::move(exact);
    SetLengths(text.size(), &options);
  }
  if (options_.sessions != nullptr) {
    auto beginning = options_.sessions->Begin(engine_, options, text, session_);
    if (!beginning.ok()) return beginning.status();
    sequence_ = std::move(beginning->sequence);
    beginning_ = *std::move(beginning);
  } else {
    auto sequence = engine_.Start(options);
    if (!sequence.ok()) return sequence.status();
    sequence_ = *std::move(sequence);
  }
  if (hooks.on_begin) hooks.on_begin(options, sequence_->stats());
  return std::vector<int32_t>(
      text.begin() + static_cast<std::ptrdiff_t>(tokens_.size()), text.end());
}

Result<bool> Conversation::Restore(const std::string& name) {
  CHECK(options_.sessions != nullptr && messages_.empty());
  auto note = options_.sessions->ReadNote(engine_, name);
  if (note.status().code() == StatusCode::kNotFound) return false;
  if (!note.ok()) return note.status();
  const std::string session = "session " + Quoted(name);
  auto transcript = ReadTranscript(note->note);
  if (!transcript) {
    return InvalidArgument(session +
                           ": was not kept by a chat; choose another name");
  }
  if (!options_.system.empty() && options_.system != transcript->system) {
    return InvalidArgument(session +
                           ": began with another system prompt; leave out "
                           "--system, or choose another name");
  }
  std::vector<int32_t> tokens = std::move(note->tokens);
  tokens.insert(tokens.end(), transcript->uncached.begin(),
                transcript->uncached.end());
  if (tokens.size() >= options_.max_tokens) {
    return InvalidArgument(session + ": has " + std::to_string(tokens.size()) +
                           " tokens, and the context " +
                           std::to_string(options_.max_tokens) +
                           "; raise --ctx, or choose another name");
  }
  session_ = name;
  generation_ = note->generation;
  options_.system = transcript->system;
  messages_ = std::move(transcript->messages);
  // Tokens of another model mean something else: its words are read anew.
  if (note->is_of_model) tokens_ = std::move(tokens);
  return true;
}

// Reads what was said so far: a turn that was stopped took the sequence away.
Status Conversation::ReadAgain() {
  auto admission = PrepareAdmission(messages_, {});
  if (!admission.ok()) return admission.status();
  admission->options.prompt_tokens = static_cast<uint32_t>(tokens_.size());
  admission->options.max_new_tokens = 0;
  auto beginning =
      options_.sessions->Begin(engine_, admission->options, tokens_, session_);
  if (!beginning.ok()) return beginning.status();
  sequence_ = std::move(beginning->sequence);
  Status status = sequence_->Prefill(
      std::span(tokens_).subspan(beginning->cached_tokens), {}, {});
  if (!status.ok()) sequence_.reset();
  return status;
}

uint64_t Conversation::GenerationOf(const std::string& name) const {
  const auto note = options_.sessions->ReadNote(engine_, name);
  return note.ok() ? note->generation : 0;
}

// What others have saved meanwhile is theirs.
std::string Conversation::NameToSaveUnder(const std::string& name) const {
  if (GenerationOf(name) == generation_) return name;
  for (uint32_t i = 2;; ++i) {
    const std::string other = name + " (" + std::to_string(i) + ")";
    if (GenerationOf(other) == 0) return other;
  }
}

Result<Sessions::Saved> Conversation::Save(const std::string& name) {
  CHECK(options_.sessions != nullptr && !tokens_.empty());
  if (sequence_ == nullptr) {
    if (Status s = ReadAgain(); !s.ok()) return s;
  }
  Transcript transcript;
  transcript.system = options_.system;
  transcript.messages = messages_;
  transcript.uncached.assign(tokens_.begin() + sequence_->n_tokens(),
                             tokens_.end());
  const std::string free_name = NameToSaveUnder(name);
  auto saved = options_.sessions->Save(engine_, *sequence_, free_name,
                                       WriteTranscript(transcript));
  if (!saved.ok()) return saved;
  session_ = free_name;
  generation_ = GenerationOf(free_name);
  return saved;
}

Result<Generation> Conversation::Say(const std::string& text,
                                     const Hooks& hooks) {
  if (text.find('\0') != std::string::npos) {
    return InvalidArgument("these words contain a NUL byte; remove it");
  }
  if (const auto n_tokens =
          FindTooManyTokens(engine_.tokenizer(), text, options_.max_tokens)) {
    return RefuseWords("at least " + std::to_string(*n_tokens),
                       options_.max_tokens);
  }
  messages_.push_back({"user", text});
  // Until the reply is there, a failure takes the user's words back.
  const auto forget = [&](Status status) {
    messages_.pop_back();
    return status;
  };
  const bool begins = sequence_ == nullptr;
  auto added = begins ? BeginSequence(hooks)
                      : TokenizeNextTurn(engine_.tokenizer(), messages_,
                                         hooks.cancelled);
  if (added.status().code() == StatusCode::kCancelled) {
    messages_.pop_back();
    Generation nothing;
    nothing.stop_reason = StopReason::kCancelled;
    if (sequence_ != nullptr) {
      nothing.kv = sequence_->stats();
      nothing.times = sequence_->times();
    }
    return nothing;
  }
  if (!added.ok()) return forget(added.status());
  const uint32_t n_cached = sequence_->n_tokens();
  std::vector<int32_t> all = tokens_;
  all.insert(all.end(), added->begin(), added->end());
  const auto prompt = std::span<const int32_t>(all).subspan(n_cached);
  const uint64_t n_after = uint64_t{n_cached} + prompt.size();
  const uint32_t n_max = sequence_->max_tokens();
  if (n_after > n_max) {
    if (begins) sequence_.reset();  // the next turn begins it anew
    return forget(RefuseWords(std::to_string(n_after), n_max));
  }

  Turn turn;
  turn.prompt = prompt;
  turn.max_new_tokens = std::min(options_.max_reply_tokens,
                                 static_cast<uint32_t>(n_max - n_after));
  turn.sampler = options_.sampler;
  const auto n_prompt = static_cast<uint32_t>(prompt.size());
  auto generation = engine_.Continue(
      *sequence_, turn, hooks.on_text,
      [&](uint32_t n_done) {
        if (hooks.progress) hooks.progress(n_done, n_prompt);
      },
      hooks.cancelled);
  const bool read_all = generation.ok() && sequence_->n_tokens() >= n_after;
  if (!read_all) {
    sequence_.reset();  // holds half a turn
    messages_.pop_back();
    return generation;
  }
  tokens_ = std::move(all);
  tokens_.insert(tokens_.end(), generation->tokens.begin(),
                 generation->tokens.end());
  messages_.push_back({"assistant", generation->text});
  return generation;
}

}  // namespace lkv::cli
