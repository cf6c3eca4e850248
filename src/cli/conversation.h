// Conversation: a chat whose turns are appended to one cached sequence, so
// that nothing said before is computed again. A budget given as a share is one
// of the conversation with the reply that comes next, so it grows by the turn.
//
// With a session it outlives its process: what was said, and all that the cache
// knew of it.
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
#include "engine/sessions.h"
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
  Sessions* sessions = nullptr;  // where it may be kept; outlives it
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

  // Goes on with the chat that was kept under this name, if there is one:
  // returns whether. Before anything is said. kInvalidArgument: it is none that
  // can be gone on with under these options, or no chat. Requires sessions.
  Result<bool> Restore(const std::string& name);
  // The session that it goes on with; empty: none.
  const std::string& session() const { return session_; }
  // Keeps the chat under a name, or, where somebody else has saved or removed
  // that session meanwhile, under one like it. Requires sessions, and that
  // something has been answered. Reads it again if a turn was stopped while it
  // was read.
  Result<Sessions::Saved> Save(const std::string& name);
  // What of it came from a session when it began, or began again.
  const Sessions::Beginning& beginning() const { return beginning_; }

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
  // Lengths of a sequence whose next prompt has so many tokens.
  void SetLengths(size_t n_prompt, SequenceOptions* options) const;
  Status ReadAgain();
  Result<Admission> PrepareAdmission(
      std::span<const ChatMessage> said,
      const std::function<bool()>& cancelled) const;
  // Admits a sequence for the text so far and the words just said, of which it
  // may have read a beginning. Gives what is to be read behind tokens_.
  Result<std::vector<int32_t>> BeginSequence(const Hooks& hooks);

  Engine& engine_;
  ConversationOptions options_;
  uint64_t GenerationOf(const std::string& name) const;  // 0: there is none
  std::string NameToSaveUnder(const std::string& name) const;

  std::string session_;      // that it goes on with; empty: none
  uint64_t generation_ = 0;  // of it, when it was loaded or saved
  std::unique_ptr<Sequence> sequence_;
  std::vector<ChatMessage> messages_;
  std::vector<int32_t> tokens_;    // of all turns but the one under way
  Sessions::Beginning beginning_;  // without its sequence
};

}  // namespace lkv::cli
