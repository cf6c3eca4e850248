// Sessions: sequences that outlive their engine, in a folder of files
// (session/session_store.h).
//
// Saved are the tokens, keys and values, and all that the cache's policy knows,
// so that whoever reads on from the end of a session gets what would have come
// without the break, evictions included. A text that shares only a beginning
// with a session takes keys and values of that beginning, where none of it was
// evicted; where a policy will evict later, the last quarter of the beginning
// (at most 1,024 tokens) is read once more, for it to see. Which session is of
// use is decided by its tokens alone, never by its name; what cannot be used,
// for whatever reason, is read anew.
//
// Thread rule: as the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "io/folder.h"
#include "io/secret_key.h"
#include "lookaheadkv/options.h"
#include "lookaheadkv/status.h"
#include "session/session_store.h"

namespace lkv {

class Sessions {
 public:
  // By the sessions.* options; makes the folder if it is missing. kNotFound:
  // it, or the key file, cannot be used.
  static Result<std::unique_ptr<Sessions>> Open(const CacheOptions& options);

  struct Saved {
    std::string id;
    uint32_t n_tokens = 0;
    uint64_t n_bytes = 0;  // of payload and state
    double seconds = 0;
    // Sessions used longest ago that left for it.
    uint64_t n_made_room = 0;
  };
  // kInvalidArgument: no session may have that name.
  static Status CheckName(const std::string& name);
  // Keeps the sequence under a name, in place of what had that name. `note` is
  // for the caller (a transcript). Between steps. As SessionStore::BeginSave;
  // kInvalidArgument: it has read nothing yet, or stopped within a step.
  Result<Saved> Save(Engine& engine, const Sequence& sequence,
                     const std::string& name, std::string_view note);

  // A sequence that is to read a text.
  struct Beginning {
    std::unique_ptr<Sequence> sequence;
    // Tokens of the text, from the first on, that it has read already.
    uint32_t cached_tokens = 0;
    std::string session;  // whose they are: its name
    uint64_t read_bytes = 0;
    double seconds = 0;
    // Why there are none: a word, and perhaps more of it.
    std::string miss;
    std::string detail;
  };
  // Admits a sequence as Engine::Start does and puts into it as much of `text`,
  // short of the last token, as any session has. Texts that share fewer than 64
  // tokens are not searched for, but all of the session `likely` is found
  // however short it is. Fails as Start only.
  Result<Beginning> Begin(Engine& engine, const SequenceOptions& options,
                          std::span<const int32_t> text,
                          const std::string& likely);

  // What was kept under a name beside the sequence.
  struct Note {
    std::vector<int32_t> tokens;
    std::string note;
    // Whether the engine has the same weights: else its tokens mean something
    // else, if anything.
    bool is_of_model = false;
    uint64_t generation = 0;  // how often it was saved
  };
  // kNotFound: no such session. kInvalidArgument: sealed with another key.
  // kCorrupt: damaged. kOutOfMemory.
  Result<Note> ReadNote(const Engine& engine, const std::string& name);
  // The note alone, of an open session. kCorrupt, kIo.
  static Result<std::string> NoteOf(const SessionReader& session);

  // As SessionStore::List, with the names of what our key opens.
  Result<std::vector<SessionRecord>> List();
  SessionStore& store() { return *store_; }
  const SessionOwner& owner() const { return owner_; }
  const SecretKey* master_key() const { return key_ ? &*key_ : nullptr; }
  const Folder& folder() const { return *folder_; }

 private:
  Sessions(std::unique_ptr<Folder> folder, std::optional<SecretKey> key);

  Result<Saved> SaveWhole(Engine& engine, const Sequence& sequence,
                          const std::string& name, std::string_view note);
  // kInvalidArgument: a pinned session has the name, and is not continued.
  Status CheckPinned(const SessionSpec& spec);
  PrefixMatch FindSession(const PrefixQuery& query, const std::string& likely);
  struct Source;  // what is taken from a session
  // Reads its state, and settles what of it is of use.
  static Result<Source> ReadSource(Engine& engine,
                                   const SequenceOptions& options,
                                   const PrefixMatch& match);
  // A sequence without contents.
  static Result<std::unique_ptr<Sequence>> Admit(Engine& engine,
                                                 const SequenceOptions& options,
                                                 const Source& source);
  static Status Fill(Engine& engine, const Sequence& sequence,
                     const Source& source);
  static Result<std::unique_ptr<Sequence>> Restore(
      Engine& engine, const SequenceOptions& options, const PrefixMatch& match,
      std::span<const int32_t> text, uint64_t* read_bytes);

  std::unique_ptr<Folder> folder_;
  std::optional<SecretKey> key_;
  SessionOwner owner_;
  std::unique_ptr<SessionStore> store_;
};

// The folder that sessions.path "auto" means. kNotFound: neither
// $XDG_STATE_HOME nor $HOME is set.
Result<std::string> DefaultSessionsPath();

}  // namespace lkv
