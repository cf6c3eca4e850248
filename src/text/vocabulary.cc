#include "text/vocabulary.h"

#include <cerrno>
#include <cstdio>
#include <exception>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/errno_text.h"
#include "gguf.h"

namespace lkv {
namespace {

struct FreeGguf {
  void operator()(gguf_context* context) const { gguf_free(context); }
};
using GgufContext = std::unique_ptr<gguf_context, FreeGguf>;
using File = std::unique_ptr<std::FILE, decltype(&std::fclose)>;

constexpr char kModelKey[] = "tokenizer.ggml.model";
constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr char kTypesKey[] = "tokenizer.ggml.token_type";
constexpr char kPrefix[] = "tokenizer.";
// Four times the largest vocabulary known; libllama holds 48 bytes for each.
constexpr uint32_t kTokensWithoutNamesMax = 1 << 20;

// The first error that libllama logged on this thread since it was cleared: its
// only explanation.
thread_local std::string first_error;

void CaptureLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
          bool is_first = first_error.empty();
          if (level == GGML_LOG_LEVEL_ERROR && is_first) first_error = text;
        },
        nullptr);
  });
}

Status Damaged(const std::string& path, const std::string& what) {
  return Corrupt(path + ": " + what + "; fetch the file or convert it again");
}

// Id of an array of the type; -1: none.
int64_t FindArray(const gguf_context* gguf, const char* key, gguf_type type) {
  int64_t id = gguf_find_key(gguf, key);
  bool fits = id >= 0 && gguf_get_kv_type(gguf, id) == GGUF_TYPE_ARRAY &&
              gguf_get_arr_type(gguf, id) == type;
  return fits ? id : -1;
}

// Tokens of a model that does not name them: what its "<family>.vocab_size"
// claims.
uint32_t CountWithoutNames(const gguf_context* gguf) {
  for (int64_t id = 0; id < gguf_get_n_kv(gguf); ++id) {
    const std::string_view key = gguf_get_key(gguf, id);
    if (key.ends_with(".vocab_size") &&
        gguf_get_kv_type(gguf, id) == GGUF_TYPE_UINT32) {
      return gguf_get_val_u32(gguf, id);
    }
  }
  return 0;
}

// What libllama takes for granted about the tokens, and answers with abort()
// or an exception out of its C interface where it is not so.
Status CheckTokens(const std::string& path, const gguf_context* gguf) {
  const int64_t model_id = gguf_find_key(gguf, kModelKey);
  if (model_id < 0 || gguf_get_kv_type(gguf, model_id) != GGUF_TYPE_STRING) {
    return Damaged(path,
                   "has no vocabulary (no key " + std::string(kModelKey) + ")");
  }
  const std::string_view model = gguf_get_val_str(gguf, model_id);
  if (model == "none" || model == "no_vocab") {
    if (CountWithoutNames(gguf) <= kTokensWithoutNamesMax) return {};
    return Damaged(path, "claims more tokens than any model has");
  }
  // With these, libllama never returns from a text whose bytes are no tokens.
  if (model == "rwkv") {
    return Damaged(path, "has a vocabulary of kind rwkv (key " +
                             std::string(kModelKey) +
                             "), which is unsupported");
  }
  const int64_t tokens_id = FindArray(gguf, kTokensKey, GGUF_TYPE_STRING);
  if (tokens_id < 0 || gguf_get_arr_n(gguf, tokens_id) == 0) {
    return Damaged(path,
                   "has no tokens (no array " + std::string(kTokensKey) + ")");
  }
  const size_t n_tokens = gguf_get_arr_n(gguf, tokens_id);
  const int64_t types_id = FindArray(gguf, kTypesKey, GGUF_TYPE_INT32);
  const bool typed =
      types_id >= 0 && gguf_get_arr_n(gguf, types_id) >= n_tokens;
  const auto* types =
      typed ? static_cast<const int32_t*>(gguf_get_arr_data(gguf, types_id))
            : nullptr;

  std::unordered_set<std::string_view> seen;
  seen.reserve(n_tokens);
  for (size_t i = 0; i < n_tokens; ++i) {
    const std::string_view token = gguf_get_arr_str(gguf, tokens_id, i);
    // libllama gives empty tokens a name of their own.
    if (!token.empty() && !seen.insert(token).second) {
      return Damaged(path, "token " + std::to_string(i) +
                               " of its vocabulary appears twice");
    }
    const bool is_byte = types != nullptr && types[i] == LLAMA_TOKEN_TYPE_BYTE;
    if (is_byte && !(token.size() == 6 && token.starts_with("<0x"))) {
      return Damaged(path, "token " + std::to_string(i) +
                               " of its vocabulary is no byte, as it claims");
    }
    if (is_byte && model == "bert") {
      return Damaged(path, "token " + std::to_string(i) +
                               " is a byte, which a bert vocabulary has not");
    }
  }
  return {};
}

// The tokenizer's part of the metadata under an architecture that is sound by
// construction: libllama also reads layer counts, experts and the like, and
// stops the process where they are nonsense.
GgufContext VocabularyPart(const gguf_context* gguf) {
  GgufContext all(gguf_init_empty());
  gguf_set_kv(all.get(), gguf);
  for (int64_t i = gguf_get_n_kv(gguf) - 1; i >= 0; --i) {
    const std::string_view key = gguf_get_key(gguf, i);
    // The name tells libllama of two vocabularies with odd rules.
    bool kept = key.starts_with(kPrefix) || key == "general.name";
    if (!kept) gguf_remove_key(all.get(), gguf_get_key(gguf, i));
  }
  const int64_t name_id = gguf_find_key(all.get(), "general.name");
  if (name_id >= 0 &&
      gguf_get_kv_type(all.get(), name_id) != GGUF_TYPE_STRING) {
    gguf_remove_key(all.get(), "general.name");
  }
  gguf_set_val_str(all.get(), "general.architecture", "llama");
  for (const char* key :
       {"llama.context_length", "llama.embedding_length", "llama.block_count",
        "llama.attention.head_count", "llama.feed_forward_length"}) {
    gguf_set_val_u32(all.get(), key, 1);
  }
  gguf_set_val_f32(all.get(), "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  gguf_set_val_u32(all.get(), "llama.vocab_size", CountWithoutNames(gguf));
  return all;
}

// The error without the names of functions in front.
std::string ErrorText() {
  std::string_view text = first_error;
  for (std::string_view prefix :
       {": error loading model: ", "error loading model vocabulary: "}) {
    const size_t begin = text.find(prefix);
    if (begin != text.npos) text.remove_prefix(begin + prefix.size());
  }
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text.empty() ? "unknown reason" : std::string(text);
}

// Every table is used once inside the guard, so that one with broken content
// is refused here instead of failing in the middle of a text.
bool TokenizesAllBytes(const llama_vocab* vocab) {
  if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) return true;
  std::string bytes = " Hello world\n";
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  std::vector<llama_token> tokens(bytes.size() * 4 + 16);
  std::vector<char> piece(1 << 16);
  try {
    int32_t n = llama_tokenize(
        vocab, bytes.data(), static_cast<int32_t>(bytes.size()), tokens.data(),
        static_cast<int32_t>(tokens.size()), false, true);
    for (int32_t i = 0; i < n; ++i) {
      llama_token_to_piece(vocab, tokens[i], piece.data(),
                           static_cast<int32_t>(piece.size()), 0, true);
    }
    return n > 0;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

Result<VocabularyModel> LoadVocabulary(const std::string& path) {
  CaptureLog();
  first_error.clear();
  File file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) {
    return NotFound(path + ": cannot be opened (" + ErrnoText(errno) +
                    "); check the path and its permissions");
  }
  GgufContext gguf(
      gguf_init_from_file_ptr(file.get(), {.no_alloc = true, .ctx = nullptr}));
  if (gguf == nullptr) {
    return Corrupt(path + ": is not a GGUF file, or is damaged (" +
                   ErrorText() + "); fetch the file again");
  }
  if (Status s = CheckTokens(path, gguf.get()); !s.ok()) return s;

  first_error.clear();
  GgufContext part = VocabularyPart(gguf.get());
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  VocabularyModel model(
      llama_model_init_from_user(part.get(), nullptr, nullptr, params));
  if (model == nullptr) {
    return Damaged(path, "its vocabulary cannot be read (" + ErrorText() + ")");
  }
  if (!TokenizesAllBytes(llama_model_get_vocab(model.get()))) {
    return Damaged(path, "its vocabulary cannot tokenise plain text");
  }
  return model;
}

}  // namespace lkv
