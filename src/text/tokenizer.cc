#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <optional>

#include "base/check.h"
#include "llama.h"
#include "text/chat_prompt.h"
#include "text/text_piece.h"
#include "text/vocabulary.h"

namespace lkv {
namespace {

// Answers whether ranges that come in ascending order overlap any of a list.
class OverlapCursor {
 public:
  explicit OverlapCursor(const std::vector<ByteRange>& list) : list_(list) {}

  bool Overlaps(ByteRange range) {
    while (next_ < list_.size() && list_[next_].end <= range.begin) ++next_;
    return next_ < list_.size() && list_[next_].begin < range.end &&
           range.begin < range.end;
  }

 private:
  const std::vector<ByteRange>& list_;
  size_t next_ = 0;
};

// Extends the last range when index follows it, else begins a new one.
void AddPinned(uint32_t index, TokenizedChat* chat) {
  if (!chat->pinned.empty() && chat->pinned.back().end == index) {
    ++chat->pinned.back().end;
  } else {
    chat->pinned.push_back({index, index + 1});
  }
}

// Whether cutting in front of a space between two ASCII letters gives the
// tokens of the whole. True of byte-pair vocabularies that first split text by
// one of these patterns of libllama: in all of them words begin there, and
// nothing looks back. What is missing here is merely tokenised in one piece.
bool SplitsAtWords(const llama_model* model) {
  constexpr std::string_view kPatterns[] = {
      "gpt-2", "llama-bpe", "llama3", "qwen2", "refact", "smollm", "starcoder",
  };
  if (llama_vocab_type(llama_model_get_vocab(model)) != LLAMA_VOCAB_TYPE_BPE) {
    return false;
  }
  char pattern[32] = {};
  llama_model_meta_val_str(model, "tokenizer.ggml.pre", pattern,
                           sizeof(pattern));
  return std::find(std::begin(kPatterns), std::end(kPatterns),
                   std::string_view(pattern)) != std::end(kPatterns);
}

// Whether a token takes white space away that stands beside it.
bool StripsSpaces(llama_token_attr attributes) {
  return (attributes & (LLAMA_TOKEN_ATTR_LSTRIP | LLAMA_TOKEN_ATTR_RSTRIP)) !=
         0;
}

// Whether a token is looked for in the text before this is split into words.
bool IsFoundFirst(llama_token_attr attributes) {
  return (attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN |
                        LLAMA_TOKEN_ATTR_USER_DEFINED)) != 0;
}

// Every byte that UTF-8 knows but NUL, in characters of all lengths.
std::string TextOfAllBytes() {
  std::string text;
  for (int byte = 1; byte < 0x80; ++byte) text += static_cast<char>(byte);
  for (int lead = 0xc2; lead < 0xe0; ++lead) {
    for (int next = 0x80; next < 0xc0; ++next) {
      text += {static_cast<char>(lead), static_cast<char>(next)};
    }
  }
  for (int lead = 0xe1; lead < 0xf0; ++lead) {
    text += {static_cast<char>(lead), '\x81', '\x81'};
  }
  for (int lead = 0xf1; lead < 0xf4; ++lead) {
    text += {static_cast<char>(lead), '\x81', '\x81', '\x81'};
  }
  return text;
}

// The first byte of a sequence of four that would stand for a number above
// U+10FFFF, which libllama throws at; npos when there is none.
size_t FindBeyondUnicode(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0xf4 || lead > 0xf7) continue;
    if (lead > 0xf4) return i;
    if (i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) > 0x8f) {
      return i;
    }
  }
  return std::string_view::npos;
}

}  // namespace

struct Tokenizer::State {
  VocabularyModel model;
  const llama_vocab* vocab = nullptr;
  bool has_text = false;  // false: token numbers only
  PieceLimits limits = {};
  llama_token bos = LLAMA_TOKEN_NULL;  // null when the model wants none

  // Appends the tokens of a piece of text, without BOS.
  void TokenizePiece(std::string_view text, Special special,
                     std::vector<int32_t>* tokens) const {
    const bool parse = special == Special::kParse;
    const auto n_bytes = static_cast<int32_t>(text.size());
    const size_t begin = tokens->size();
    // A guess that holds for most text; else libllama says how many.
    int32_t n = n_bytes / 2 + 16;
    while (true) {
      tokens->resize(begin + static_cast<size_t>(n));
      int32_t n_written = 0;
      try {
        n_written = llama_tokenize(vocab, text.data(), n_bytes,
                                   tokens->data() + begin, n,
                                   /*add_special=*/false, parse);
      } catch (const std::exception&) {
        // Nothing is lost but a byte: apart, the bytes of such a sequence are
        // like others that are no UTF-8.
        const size_t at = FindBeyondUnicode(text);
        if (at != std::string_view::npos && text.size() > 1) {
          const size_t cut = at + 1 < text.size() ? at + 1 : at;
          tokens->resize(begin);
          TokenizePiece(text.substr(0, cut), special, tokens);
          TokenizePiece(text.substr(cut), special, tokens);
          return;
        }
        // Tables that are damaged in a corner that loading did not touch.
      }
      if (n_written >= 0) {
        tokens->resize(begin + static_cast<size_t>(n_written));
        return;
      }
      n = -n_written;
    }
  }

  // The same for text of any length. False when cancelled before its end.
  bool TokenizeText(std::string_view text, Special special,
                    const std::function<bool()>& cancelled,
                    std::vector<int32_t>* tokens) const {
    while (!text.empty()) {
      if (cancelled && cancelled()) return false;
      const size_t end = FirstPieceEnd(text, limits);
      TokenizePiece(text.substr(0, end), special, tokens);
      text.remove_prefix(end);
    }
    return true;
  }
  // With BOS where the model wants one. False when cancelled.
  bool TokenizeFromStart(std::string_view text, Special special,
                         const std::function<bool()>& cancelled,
                         std::vector<int32_t>* tokens) const;

  std::string TokenBytes(int32_t token, Special special) const;
  std::optional<std::vector<ByteRange>> PlaceTokens(
      std::span<const int32_t> tokens, std::string_view text) const;
  std::optional<TokenizedChat> TokenizeWhole(const ChatPrompt& prompt,
                                             std::vector<int32_t> tokens) const;
  // Empty when cancelled.
  std::optional<TokenizedChat> TokenizeParts(
      const ChatPrompt& prompt, const std::function<bool()>& cancelled) const;
  bool KeepsWordsApart() const;
};

// Whether no token that is looked for first joins two words, nor touches the
// spaces around it.
bool Tokenizer::State::KeepsWordsApart() const {
  for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    const llama_token_attr attributes = llama_vocab_get_attr(vocab, token);
    if (StripsSpaces(attributes)) return false;
    const std::string_view text = llama_vocab_get_text(vocab, token);
    if (IsFoundFirst(attributes) && text.find(' ') != text.npos) return false;
  }
  return true;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Open(const std::string& path) {
  Result<VocabularyModel> model = LoadVocabulary(path);
  if (!model.ok()) return model.status();
  auto state = std::make_unique<State>();
  state->model = std::move(*model);
  state->vocab = llama_model_get_vocab(state->model.get());
  state->has_text = llama_vocab_type(state->vocab) != LLAMA_VOCAB_TYPE_NONE;
  // Byte-pair vocabularies split text by std::regex, which recurses once per
  // character of a match: 64 Ki of one kind overflow a stack of 8 MiB. The
  // others may not be cut but where they must: every piece begins with a space.
  const bool by_regex = llama_vocab_type(state->vocab) == LLAMA_VOCAB_TYPE_BPE;
  state->limits = {
      .bytes_max = kPieceBytes,
      .run_characters_max = by_regex ? kRunCharacters : kPieceBytes};
  if (SplitsAtWords(state->model.get()) && state->KeepsWordsApart()) {
    state->limits.bytes_wanted = kWantedPieceBytes;
  }
  if (state->has_text && llama_vocab_get_add_bos(state->vocab)) {
    state->bos = llama_vocab_bos(state->vocab);
  }
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(state)));
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::Tokenize(std::string_view text, Start start,
                                         Special special) const {
  std::vector<int32_t> tokens;
  if (!state_->has_text) return tokens;
  if (start == Start::kAsTrained) {
    state_->TokenizeFromStart(text, special, {}, &tokens);
  } else {
    state_->TokenizeText(text, special, {}, &tokens);
  }
  return tokens;
}

bool Tokenizer::State::TokenizeFromStart(std::string_view text, Special special,
                                         const std::function<bool()>& cancelled,
                                         std::vector<int32_t>* tokens) const {
  if (!TokenizeText(text, special, cancelled, tokens)) return false;
  const bool begins_with_bos = !tokens->empty() && tokens->front() == bos;
  if (bos != LLAMA_TOKEN_NULL && !begins_with_bos) {
    tokens->insert(tokens->begin(), bos);
  }
  return true;
}

bool Tokenizer::cuts_between_words() const {
  return state_->limits.bytes_wanted == kWantedPieceBytes;
}

uint64_t Tokenizer::FewestTokens(std::string_view text) const {
  const auto type = llama_vocab_type(vocab());
  if (type != LLAMA_VOCAB_TYPE_BPE && type != LLAMA_VOCAB_TYPE_SPM) return 0;
  // A byte that the vocabulary does not have gives no token: SmolLM2 drops
  // 0x04.
  std::array<bool, 256> is_kept = {};
  for (int32_t token :
       Tokenize(TextOfAllBytes(), Start::kNone, Special::kAsText)) {
    for (char byte : TokenBytes(token, Special::kAsText)) {
      is_kept[static_cast<uint8_t>(byte)] = true;
    }
  }
  // What is no UTF-8 is read as U+FFFD.
  if (!is_kept[0xef] || !is_kept[0xbf] || !is_kept[0xbd]) return 0;
  size_t longest = 4;  // a character that is unknown
  for (uint32_t i = 0; i < vocab_size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    if (StripsSpaces(llama_vocab_get_attr(vocab(), token))) return 0;
    longest = std::max(longest, TokenBytes(token, Special::kParse).size());
  }
  const auto n_kept = static_cast<size_t>(std::count_if(
      text.begin(), text.end(),
      [&](char byte) { return is_kept[static_cast<uint8_t>(byte)]; }));
  return (n_kept + longest - 1) / longest;
}

std::string Tokenizer::State::TokenBytes(int32_t token, Special special) const {
  if (!has_text) return {};
  std::string bytes(16, '\0');
  while (true) {
    int32_t n = llama_token_to_piece(vocab, token, bytes.data(),
                                     static_cast<int32_t>(bytes.size()),
                                     /*lstrip=*/0, special == Special::kParse);
    if (n >= 0) {
      bytes.resize(static_cast<size_t>(n));
      return bytes;
    }
    bytes.resize(static_cast<size_t>(-n));
  }
}

std::string Tokenizer::TokenBytes(int32_t token, Special special) const {
  CHECK(token >= 0 && static_cast<uint32_t>(token) < vocab_size());
  return state_->TokenBytes(token, special);
}

std::string Tokenizer::Detokenize(std::span<const int32_t> tokens) const {
  if (!state_->has_text) return {};
  // libllama removes BOS too, but then leaves the space that SentencePiece put
  // behind it.
  if (!tokens.empty() && tokens[0] == state_->bos) tokens = tokens.subspan(1);
  std::string text(tokens.size() * 4 + 16, '\0');
  while (true) {
    int32_t n = llama_detokenize(
        state_->vocab, tokens.data(), static_cast<int32_t>(tokens.size()),
        text.data(), static_cast<int32_t>(text.size()),
        /*remove_special=*/false, /*unparse_special=*/false);
    if (n >= 0) {
      text.resize(static_cast<size_t>(n));
      return text;
    }
    text.resize(static_cast<size_t>(-n));
  }
}

bool Tokenizer::IsEndOfGeneration(int32_t token) const {
  return llama_vocab_is_eog(state_->vocab, token);
}

uint32_t Tokenizer::vocab_size() const {
  return static_cast<uint32_t>(llama_vocab_n_tokens(state_->vocab));
}

const llama_vocab* Tokenizer::vocab() const { return state_->vocab; }

bool Tokenizer::has_chat_template() const {
  return llama_model_chat_template(state_->model.get(), nullptr) != nullptr;
}

// The bytes of `text` that every token covers; empty when the vocabulary
// normalises text, so that pieces and text differ.
std::optional<std::vector<ByteRange>> Tokenizer::State::PlaceTokens(
    std::span<const int32_t> tokens, std::string_view text) const {
  std::vector<ByteRange> places;
  places.reserve(tokens.size());
  size_t at = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string piece = TokenBytes(tokens[i], Special::kParse);
    // In front of the text may stand a BOS that is not in it.
    if (i == 0 && tokens[i] == bos && !text.starts_with(piece)) piece.clear();
    std::string_view bytes = piece;
    // SentencePiece puts a space in front of text and after special tokens.
    if (bytes.starts_with(' ') && !text.substr(at).starts_with(bytes)) {
      bytes.remove_prefix(1);
    }
    if (!text.substr(at).starts_with(bytes)) return {};
    places.push_back({at, at + bytes.size()});
    at += bytes.size();
  }
  if (at != text.size()) return {};
  return places;
}

// `tokens` of the whole prompt as the model was trained on it; empty when they
// cannot be placed, or a marker that somebody wrote into a message became a
// special token: it must not act as one.
std::optional<TokenizedChat> Tokenizer::State::TokenizeWhole(
    const ChatPrompt& prompt, std::vector<int32_t> tokens) const {
  std::optional<std::vector<ByteRange>> places =
      PlaceTokens(tokens, prompt.text);
  if (!places) return {};
  OverlapCursor contents(prompt.contents);
  OverlapCursor evictable(prompt.evictable);
  TokenizedChat chat{.tokens = std::move(tokens), .pinned = {}};
  for (size_t i = 0; i < chat.tokens.size(); ++i) {
    const ByteRange place = (*places)[i];
    const bool in_content = contents.Overlaps(place);
    if (in_content && llama_vocab_is_control(vocab, chat.tokens[i])) return {};
    if (!evictable.Overlaps(place)) AddPinned(static_cast<uint32_t>(i), &chat);
  }
  return chat;
}

// Contents and markers each by themselves: a few tokens at the seams may
// differ from those of the whole, but the places are certain.
std::optional<TokenizedChat> Tokenizer::State::TokenizeParts(
    const ChatPrompt& prompt, const std::function<bool()>& cancelled) const {
  const std::string_view text = prompt.text;
  OverlapCursor evictable(prompt.evictable);
  TokenizedChat chat;
  if (bos != LLAMA_TOKEN_NULL) {
    chat.tokens.push_back(bos);
    AddPinned(0, &chat);
  }
  auto add = [&](ByteRange part, Special special) {
    auto first = static_cast<uint32_t>(chat.tokens.size());
    if (!TokenizeText(text.substr(part.begin, part.end - part.begin), special,
                      cancelled, &chat.tokens)) {
      return false;
    }
    if (evictable.Overlaps(part)) return true;
    for (uint32_t i = first; i < chat.tokens.size(); ++i) AddPinned(i, &chat);
    return true;
  };
  size_t at = 0;
  for (ByteRange content : prompt.contents) {
    if (!add({at, content.begin}, Special::kParse)) return std::nullopt;
    if (!add(content, Special::kAsText)) return std::nullopt;
    at = content.end;
  }
  if (!add({at, text.size()}, Special::kParse)) return std::nullopt;
  return chat;
}

Result<TokenizedChat> Tokenizer::TokenizeChat(
    std::span<const ChatMessage> messages, Reply reply,
    const std::function<bool()>& cancelled) const {
  const char* chat_template =
      llama_model_chat_template(state_->model.get(), nullptr);
  if (!state_->has_text || chat_template == nullptr) {
    return InvalidArgument(
        "chat: the model carries no chat template; give the prompt as plain "
        "text");
  }
  Result<ChatPrompt> prompt = RenderChat(chat_template, messages, reply);
  if (!prompt.ok()) return prompt.status();
  std::vector<int32_t> tokens;
  std::optional<TokenizedChat> chat;
  if (state_->TokenizeFromStart(prompt->text, Special::kParse, cancelled,
                                &tokens)) {
    chat = state_->TokenizeWhole(*prompt, std::move(tokens));
    if (!chat) chat = state_->TokenizeParts(*prompt, cancelled);
  }
  if (!chat) return Cancelled("chat: stopped while its words were read");
  return *std::move(chat);
}

}  // namespace lkv
