// Tokenizer: text to tokens and back, and chat templates, by libllama loaded
// without weights. Only this folder knows llama.h.
//
// Thread rule: const calls from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "lookaheadkv/status.h"
#include "text/utf8_stream.h"

struct llama_model;
struct llama_vocab;

namespace lkv {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// A prompt in tokens with the ranges a cache should not evict by default:
// system message and template markers. Ranges are ascending.
struct TokenizedChat {
  std::vector<int32_t> tokens;
  std::vector<PositionRange> pinned;
};

class Tokenizer {
 public:
  // Loads the vocabulary of a GGUF file (0.1 to 0.7 s). kNotFound: it cannot be
  // opened; kCorrupt: no GGUF, or its vocabulary is damaged or of an unknown
  // kind. A file without vocabulary (tokenizer.ggml.model "none") opens too:
  // it knows token numbers, but no text.
  static Result<std::unique_ptr<Tokenizer>> Open(const std::string& path);
  ~Tokenizer();

  // Beyond the longest context of any model; libllama counts in int32.
  static constexpr size_t kPieceBytes = size_t{64} << 20;
  // Garbage, and Chinese paragraphs of that length.
  static constexpr size_t kRunCharacters = 4096;

  // 40 ms of work.
  static constexpr size_t kWantedPieceBytes = size_t{16} << 10;

  enum class Special { kAsText, kParse };  // how "<|im_start|>" is read
  enum class Start { kNone, kAsTrained };  // whether BOS is put in front

  // Invalid UTF-8 bytes are legal input: they become byte tokens or the
  // vocabulary's unknown token, never an error. BOS is not doubled when the
  // text begins with it. No EOS is appended. Text beyond kPieceBytes, and
  // runs of one kind of characters beyond kRunCharacters, are cut: tokens at
  // the seams may differ from those of the whole.
  std::vector<int32_t> Tokenize(std::string_view text, Start start,
                                Special special) const;
  // Whether long text is cut between words, which changes no token: so far as
  // the vocabulary is known to split text there.
  bool cuts_between_words() const;
  // A number of tokens that the text has at least, from its length and the
  // longest token: 0 where the vocabulary sets no bound, because it reads an
  // unknown word as one token or drops white space. 5 ms and 1 ms per MiB.
  uint64_t FewestTokens(std::string_view text) const;
  // The bytes of one token; may be part of a UTF-8 character.
  std::string TokenBytes(int32_t token, Special special) const;
  std::string Detokenize(std::span<const int32_t> tokens) const;

  bool IsEndOfGeneration(int32_t token) const;
  uint32_t vocab_size() const;

  bool has_chat_template() const;
  // Applies the model's own template (built-in list of libllama). kBegin
  // appends the start of the assistant's turn. Markers such as "<|im_end|>"
  // that stand inside a message's content are plain text: they end no turn.
  // kInvalidArgument when the model carries no usable template, or a message
  // contains a NUL byte; kCancelled when `cancelled` says so, which is asked
  // every kWantedPieceBytes with cuts_between_words().
  enum class Reply { kOmit, kBegin };
  Result<TokenizedChat> TokenizeChat(
      std::span<const ChatMessage> messages, Reply reply,
      const std::function<bool()>& cancelled = {}) const;

  const llama_vocab* vocab() const;  // for text/sampler.cc

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lkv
