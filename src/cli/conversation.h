// Conversation: a chat whose turns are appended to one cached sequence, so
// that nothing said before is computed again. A budget given as a share is one
// of the conversation with the reply that comes next, so it grows by the turn.
//
// Thread-compatible; must not outlive its engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/kv_cache.h"
#include "engine/engine.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"
#include "text/sampler.h"
#include "text/tokenizer.h"

namespace lkv::cli {

struct ConversationOptions {
  CacheOptions cache;
  SamplerOptions sampler;
  std::string system;       // empty: none
  uint32_t max_tokens = 0;  // of the whole conversation
  uint32_t max_reply_tokens = 0;
};

class Conversation {
 public:
  Conversation(Engine& engine, ConversationOptions options)
      : engine_(engine), options_(std::move(options)) {}

  // What would be refused whatever is said: kInvalidArgument when the model
  // has no chat template, the budget is too small or the sampler is wrong.
  Status Check() const;

  struct Hooks {
    // A sequence was admitted: at the first turn, and when a cancelled one made
    // the conversation start again.
    std::function<void(const SequenceOptions&, const SequenceStats&)> on_begin;
    std::function<bool(std::string_view)> on_text;
    std::function<void(uint32_t done, uint32_t total)> progress;
    std::function<bool()> cancelled;  // also asked while words are tokenised
  };
  // Says `text` as the user and returns the reply. Stats and times are those
  // of the whole conversation. Cancelled while reading the text, the turn is
  // forgotten, and the next one reads the conversation again.
  // kInvalidArgument: a NUL byte, or more words than the conversation has room
  // for; the message begins with "these words". The chat may go on.
  Result<Generation> Say(const std::string& text, const Hooks& hooks);

  const std::vector<ChatMessage>& messages() const { return messages_; }
  // nullptr before the first turn.
  const Sequence* sequence() const { return sequence_.get(); }
  // By position; those after sequence()->n_tokens() are not cached yet.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const CacheOptions& cache() const { return options_.cache; }

 private:
  struct Admission {
    SequenceOptions options;
    std::vector<int32_t> tokens;
  };
  Result<Admission> PrepareAdmission(
      std::span<const ChatMessage> said,
      const std::function<bool()>& cancelled) const;
  Result<std::vector<int32_t>> BeginSequence(const Hooks& hooks);

  Engine& engine_;
  const ConversationOptions options_;
  std::unique_ptr<Sequence> sequence_;
  std::vector<ChatMessage> messages_;
  std::vector<int32_t> tokens_;
};

}  // namespace lkv::cli
