// The library's front door: open a model, hold a context under a KV budget,
// generate, and see what the budget saved and cost.
//
//   auto model = lkv::Model::Open("model.gguf", {});
//   lkv::SessionOptions options;
//   options.cache.budget = {lkv::Budget::Kind::kShare, 0.25};
//   auto session = model->NewSession(options);
//   auto reply = session->Generate("Once upon a time", {}, {});
//
// No exception crosses this border: what can fail returns a Result. Thread
// rule: a model and its sessions belong to one caller at a time; they use the
// model's own threads inside the calls. Sessions must not outlive their model.
// What was moved from may be destroyed or assigned to; any other use stops the
// process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lookaheadkv/export.h"
#include "lookaheadkv/hit_rates.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"

namespace lkv {

struct ModelOptions {
  uint32_t n_threads = 0;  // 0: the cores this process may use
  ActivationPrecision activations = ActivationPrecision::kAuto;
  // Allows sessions longer than the model was trained for.
  bool allow_beyond_trained = false;
};

struct SessionOptions {
  CacheOptions cache;
  // Most tokens of all prompts and replies together; a budget given as a share
  // is one of this. 0: the length the model was trained for.
  uint32_t max_tokens = 0;
};

// How a prompt is read.
enum class PromptForm {
  kPlain,  // goes on from the text as it stands
  kChat,   // a user's message, put into the model's own template
};

struct GenerateOptions {
  PromptForm form = PromptForm::kPlain;
  uint32_t max_new_tokens = 256;
  bool ignore_eos = false;      // go on to max_new_tokens
  float temperature = 0.0f;     // 0: always the most likely token
  int32_t top_k = 40;           // 0: off
  float top_p = 0.95f;          // 1: off
  float min_p = 0.05f;          // 0: off
  float repeat_penalty = 1.0f;  // 1: off
  uint32_t seed = 0;
  std::string grammar = {};  // GBNF text; empty: none
};

// Callbacks must not throw.
//
// Gets whole UTF-8 characters as they come; returns false to stop.
using TextCallback = std::function<bool(std::string_view)>;
// Asked once per layer in prefill and once per token.
using CancelCallback = std::function<bool()>;

struct Reply {
  enum class Stop { kLength, kEndOfText, kCancelled };
  std::string text;
  Stop stop = Stop::kLength;
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;  // 0 when nothing was decoded
};

// Memory of a session's KV cache.
struct SessionMemory {
  uint64_t budget_bytes = 0;        // hard cap on resident_bytes, but for a
                                    // first prompt that is read whole
  uint64_t resident_bytes = 0;      // keys, values and metadata now
  uint64_t resident_bytes_max = 0;  // the most at any moment
  uint64_t shared_bytes = 0;        // of resident_bytes: held by forks, too
  uint64_t full_bytes = 0;          // what keeping everything would take
  uint64_t evicted_tokens = 0;      // mean over layers and heads
};

// One context under a budget. Each call of Generate goes on where the last one
// ended.
class LKV_EXPORT Session {
 public:
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // Reads the prompt and generates a reply. Both callbacks may be empty; from
  // within them this session can neither generate nor be forked
  // (kInvalidArgument). A cancelled reply is no failure, but a session
  // cancelled while it read its prompt takes no more text (kInvalidArgument).
  Result<Reply> Generate(std::string_view prompt,
                         const GenerateOptions& options,
                         const TextCallback& on_text,
                         const CancelCallback& cancelled);

  // Another session that goes on from the same text, so that several questions
  // can be asked about one document that was read once. Each of the two is what
  // it would be if it had read the text alone, under a budget of its own; the
  // text is in memory once. kInvalidArgument when the session was cancelled
  // while it read its prompt, or is still to read one whole; kOutOfMemory when
  // the machine has no room for the text that the new session may add.
  Result<Session> Fork();

  // Keeps the session in a file of the folder that the options' sessions_path
  // names, under a name of any bytes, in place of what had that name, so that
  // Model::RestoreSession can go on with it in another process. Takes the time
  // of writing what the cache holds. kInvalidArgument: it has no text yet, or
  // was cancelled while it read its prompt; kOutOfMemory: no room within
  // sessions_bytes; kNotFound: the folder cannot be used; kIo.
  Status Save(const std::string& name);

  SessionMemory memory() const;

  // Repeats everything that this session read and wrote, once under its policy
  // and once with a full cache, and compares. Takes twice the time of the
  // session and the memory of a full cache.
  Result<HitRates> MeasureHitRates() const;

 private:
  friend class Model;
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class LKV_EXPORT Model {
 public:
  // Loads a GGUF model (the first file of a split one). kNotFound, kCorrupt,
  // or kOutOfMemory, said before loading when the machine is too small.
  static Result<Model> Open(const std::string& path,
                            const ModelOptions& options);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  Result<Session> NewSession(const SessionOptions& options) const;
  // A session that goes on where the saved one of that name ended, as if there
  // had been no break, evictions included. Under other options than it was
  // saved with, or should its file be damaged, its text is read anew.
  // kNotFound: there is none of that name; kInvalidArgument: it was not saved
  // by Session::Save, or is longer than options.max_tokens; as NewSession.
  Result<Session> RestoreSession(const std::string& name,
                                 const SessionOptions& options) const;

  uint64_t weight_bytes() const;
  uint32_t trained_context_tokens() const;

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lkv
