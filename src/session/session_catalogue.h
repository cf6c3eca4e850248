// SessionCatalogue: which sessions a folder has, by whom, how often and when
// used, and the chains of their tokens (token_chain.h), in SQLite.
//
// Nothing depends on it: it can be made anew from the files (SessionStore does
// so), and what it says is checked with the file before use. Any failure means
// just that.
//
// Thread rule: thread-compatible. Other processes may have it open, too; calls
// belong under the folder's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lookaheadkv/status.h"
#include "session/session_format.h"
#include "session/sql_database.h"

namespace lkv {

struct SessionRecord {
  std::string id;       // 32 hexadecimal digits; names the file
  FileId file_id = {};  // of the file that this was read from
  std::string name;     // empty if the file is sealed and its key unknown
  Digest owner_tag = {};
  Digest fingerprint_hash = {};
  uint32_t n_tokens = 0;
  uint32_t complete_tokens = 0;
  uint64_t generation = 0;
  uint64_t n_bytes = 0;  // of the file
  int64_t created_unix_s = 0;
  int64_t last_use_unix_s = 0;
  uint64_t n_hits = 0;
  bool is_pinned = false;
};

// A session of the owner that begins like the tokens asked for.
struct PrefixCandidate {
  SessionRecord record;
  uint32_t n_links = 0;  // whole links that are equal
};

class SessionCatalogue {
 public:
  // Sessions compared for one prefix, those used last.
  static constexpr uint32_t kMaxCandidates = 1024;

  // An empty path: in memory. Makes it if it is missing. Checks it, in time
  // proportional to its size (1 ms per 10,000 links).
  static Result<SessionCatalogue> Open(const std::string& path);

  // Whether another process has made it anew, so that this is an old one.
  bool IsReplaced() const { return database_.IsReplaced(); }

  // Adds the session, or replaces what was known of it but for its hits. It
  // counts as the one used last.
  Status Put(const SessionRecord& record, std::span<const Digest> chain);
  Status Remove(std::string_view id);
  Status CountHit(std::string_view id, int64_t now_unix_s);
  Status SetPinned(std::string_view id, bool is_pinned);

  Result<std::optional<SessionRecord>> Find(std::string_view id);
  // The one used longest ago first.
  Result<std::vector<SessionRecord>> List();
  Result<bool> HasOwner(const Digest& owner_tag);
  // Sessions whose first link is that of `chain`, the one used last first.
  // O(candidates * log links).
  Result<std::vector<PrefixCandidate>> FindPrefixes(
      std::span<const Digest> chain);

 private:
  SessionCatalogue() = default;
  Status Prepare();
  Status PutRow(const SessionRecord& record);
  // How many links of the chain the session has.
  Result<uint32_t> CountLinks(std::string_view id,
                              std::span<const Digest> chain);

  SqlDatabase database_;
  SqlStatement put_, put_link_, remove_, remove_links_, count_hit_, set_pinned_,
      find_, list_, has_owner_, with_link_, has_link_;
};

}  // namespace lkv
