#include "cli/conversation.h"

#include <algorithm>
#include <span>
#include <utility>

namespace lkv::cli {

// Admits a sequence for the messages so far and gives all their tokens.
Result<std::vector<int32_t>> Conversation::BeginSequence() {
  std::vector<ChatMessage> messages;
  if (!options_.system.empty()) messages.push_back({"system", options_.system});
  messages.insert(messages.end(), messages_.begin(), messages_.end());
  auto chat =
      engine_.tokenizer().TokenizeChat(messages, Tokenizer::Reply::kBegin);
  if (!chat.ok()) return chat.status();

  SequenceOptions admission;
  admission.cache = options_.cache;
  // More than fits is refused when the turn begins.
  admission.prompt_tokens = static_cast<uint32_t>(
      std::min<size_t>(options_.max_tokens, chat->tokens.size()));
  admission.max_new_tokens = std::min(
      options_.max_reply_tokens, options_.max_tokens - admission.prompt_tokens);
  admission.max_tokens = options_.max_tokens;
  if (options_.cache.pin_system) admission.pinned = std::move(chat->pinned);
  tokens_.clear();
  auto sequence = engine_.Start(admission);
  if (!sequence.ok()) return sequence.status();
  sequence_ = std::move(*sequence);
  return std::move(chat->tokens);
}

// The tokens between the end of the last reply and the beginning of the next.
// The cached reply keeps the tokens that were drawn, which need not be those
// that its text would give. So the messages are rendered twice, with different
// words in the reply's place: what both have in common at their end follows
// the reply.
Result<std::vector<int32_t>> Conversation::ContinueSequence() const {
  std::vector<ChatMessage> messages(messages_.end() - 3, messages_.end());
  std::vector<std::vector<int32_t>> renderings;
  for (const char* reply : {"one", "two"}) {
    messages[1].content = reply;
    auto chat =
        engine_.tokenizer().TokenizeChat(messages, Tokenizer::Reply::kBegin);
    if (!chat.ok()) return chat.status();
    renderings.push_back(std::move(chat->tokens));
  }
  const auto differ =
      std::mismatch(renderings[0].rbegin(), renderings[0].rend(),
                    renderings[1].rbegin(), renderings[1].rend());
  return std::vector<int32_t>(differ.first.base(), renderings[0].end());
}

Result<Generation> Conversation::Say(const std::string& text,
                                     const Hooks& hooks) {
  messages_.push_back({"user", text});
  // Until the reply is there, a failure takes the user's words back.
  const auto forget = [&](Status status) {
    messages_.pop_back();
    return status;
  };
  auto added = sequence_ == nullptr ? BeginSequence() : ContinueSequence();
  if (!added.ok()) return forget(added.status());
  const uint32_t n_cached = sequence_->n_tokens();
  std::vector<int32_t> prompt(tokens_.begin() + n_cached, tokens_.end());
  prompt.insert(prompt.end(), added->begin(), added->end());
  const uint64_t n_after = uint64_t{n_cached} + prompt.size();
  const uint32_t n_max = sequence_->max_tokens();
  if (n_after > n_max) {
    if (n_cached == 0) sequence_.reset();  // the next turn begins it anew
    return forget(
        InvalidArgument("chat: these words need " + std::to_string(n_after) +
                        " tokens of " + std::to_string(n_max) +
                        "; say less, or begin again with a larger --ctx"));
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
