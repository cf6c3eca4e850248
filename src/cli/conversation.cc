#include "cli/conversation.h"

#include <algorithm>
#include <utility>

#include "engine/admission.h"
#include "text/chat_turn.h"

namespace lkv::cli {
namespace {

Status RefuseWords(const std::string& n_needed, uint32_t n_max) {
  return InvalidArgument("these words need " + n_needed + " tokens of " +
                         std::to_string(n_max) +
                         "; say less, or begin again with a larger --ctx");
}

}  // namespace

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
  options.prompt_tokens = static_cast<uint32_t>(
      std::min<size_t>(options_.max_tokens, chat->tokens.size()));
  options.max_new_tokens = std::min(
      options_.max_reply_tokens, options_.max_tokens - options.prompt_tokens);
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

// Admits a sequence for the messages so far and gives all their tokens.
Result<std::vector<int32_t>> Conversation::BeginSequence(const Hooks& hooks) {
  auto admission = PrepareAdmission(messages_, hooks.cancelled);
  if (!admission.ok()) return admission.status();
  tokens_.clear();
  auto sequence = engine_.Start(admission->options);
  if (!sequence.ok()) return sequence.status();
  sequence_ = std::move(*sequence);
  if (hooks.on_begin) hooks.on_begin(admission->options, sequence_->stats());
  return std::move(admission->tokens);
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
  auto added =
      sequence_ == nullptr
          ? BeginSequence(hooks)
          : TokenizeNextTurn(engine_.tokenizer(), messages_, hooks.cancelled);
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
  std::vector<int32_t> prompt(tokens_.begin() + n_cached, tokens_.end());
  prompt.insert(prompt.end(), added->begin(), added->end());
  const uint64_t n_after = uint64_t{n_cached} + prompt.size();
  const uint32_t n_max = sequence_->max_tokens();
  if (n_after > n_max) {
    if (n_cached == 0) sequence_.reset();  // the next turn begins it anew
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
    tokens_.clear();
    messages_.pop_back();
    return generation;
  }
  tokens_.resize(n_cached);
  tokens_.insert(tokens_.end(), prompt.begin(), prompt.end());
  tokens_.insert(tokens_.end(), generation->tokens.begin(),
                 generation->tokens.end());
  messages_.push_back({"assistant", generation->text});
  return generation;
}

}  // namespace lkv::cli
