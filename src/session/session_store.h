// SessionStore: the one door to saved sessions. It keeps their folder within a
// quota, whatever other processes do in it, and finds the one with the longest
// common beginning.
//
//   <id>.session   a session (session_format.h); the id follows from owner and
//                  name, so saving again replaces it, at one moment
//   <hex>.draft    one that is being written
//   catalogue.db   made anew when it is missing or damaged
//   lock           held by whoever changes something
//
// A session that is pinned has a file of mode 0400.
//
// Thread rule: thread-compatible; any number of stores, in any processes, may
// share a folder. Calls wait for the lock, up to 10 s, and hold it for a few
// files at most; the payload of a save is written without it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "io/folder.h"
#include "lookaheadkv/status.h"
#include "session/session_catalogue.h"
#include "session/session_reader.h"
#include "session/session_writer.h"

namespace lkv {

struct StoreOptions {
  uint64_t quota_bytes = uint64_t{8} << 30;     // of the folder, on the disk
  uint64_t min_free_bytes = uint64_t{1} << 30;  // stay free on the disk
  uint32_t keep_days = 0;  // since the last use; 0: for ever
  Durability durability = Durability::kSession;
  std::optional<SecretKey> master_key = std::nullopt;  // seals what is saved
};

// Why FindPrefix found nothing.
enum class PrefixMiss {
  kNone,
  kNoSession,         // the owner has none
  kNoCommonPrefix,    // none begins with the same 64 tokens
  kOtherFingerprint,  // one does, but was made otherwise; detail says in what
  kEvictedPrefix,     // one does, but lacks tokens before the place
  kDamaged,           // one does, but its file is damaged or sealed otherwise
  kUnavailable,       // the folder could not be read; detail says why
};
// As metrics name it: "no_session".
std::string_view Text(PrefixMiss miss);

// What continues from a saved session.
struct PrefixMatch {
  std::string id;
  std::unique_ptr<SessionReader> session;  // null: a miss
  uint32_t n_tokens = 0;                   // that may be taken from it
  PrefixMiss miss = PrefixMiss::kNone;
  std::string detail;
};

struct PrefixQuery {
  const SessionOwner& owner;
  const Fingerprint& fingerprint;
  std::span<const int32_t> tokens;
  std::span<const std::string> except = {};  // ids that proved to be of no use
};

// What Collect did and what it left. Texts name files.
struct CollectReport {
  uint64_t freed_bytes = 0;
  std::vector<std::string> drafts;   // removed: their writers are gone
  std::vector<std::string> damaged;  // removed, with the reason
  std::vector<std::string> expired;  // removed: not used for keep_days
  std::vector<std::string> left;     // of another version, unreadable, not ours
};

// Since the store was opened.
struct StoreCounters {
  uint64_t saved = 0;
  uint64_t too_large = 0;     // larger than the quota
  uint64_t no_room = 0;       // too much is pinned, open or not ours
  uint64_t failed_saves = 0;  // for any other reason
  uint64_t failed_syncs = 0;
  uint64_t made_room = 0;  // sessions that left for another one
  uint64_t damaged = 0;    // sessions found damaged
  uint64_t rebuilt_catalogues = 0;
};

// A session under way. Gone without a trace unless it is finished.
class SessionSave {
 public:
  // As SessionWriter::Append.
  Status Append(const BlockInfo& info, std::span<const uint8_t> bytes) {
    return writer_->Append(info, bytes);
  }

 private:
  friend class SessionStore;
  std::unique_ptr<SessionWriter> writer_;
  SessionRecord record_;
  std::vector<Digest> chain_;
};

// The id of a session: nobody can tell owner or name from it.
std::string SessionId(const Digest& owner_tag, std::string_view name);

class SessionStore {
 public:
  // Also collects what is left of dead writers and of what was kept too long.
  // What is damaged stays until Collect, or until its room is needed.
  // The folder and the clock outlive the store.
  static Result<std::unique_ptr<SessionStore>> Open(
      Folder& folder, const Clock& clock, const StoreOptions& options);

  // Takes the disk space of a whole session; if need be, those used longest ago
  // leave. kOutOfMemory when it does not fit the quota, or not beside what is
  // pinned or open; nothing has been written then.
  Result<SessionSave> BeginSave(const SessionSpec& spec,
                                const PayloadBound& bound);
  // Returns the id. When only the folder could not be synced, it fails although
  // the session is there: it may be gone after a crash of the machine.
  Result<std::string> FinishSave(SessionSave save);

  // The session of the owner that has most of the tokens, from the first on, in
  // common: looked up by chain, then compared token by token. If not all of its
  // tokens are, it counts only as far as nothing had been evicted. When over 16
  // sessions share as many links, up to 63 tokens may be missed.
  PrefixMatch FindPrefix(const PrefixQuery& query);
  // kNotFound, or as SessionReader::Open.
  Result<std::unique_ptr<SessionReader>> OpenSession(
      const std::string& id, const SessionAccess& access);
  // To be called once a session has been restored.
  Status CountHit(const std::string& id);

  // The one used longest ago first.
  Result<std::vector<SessionRecord>> List();
  Status Remove(const std::string& id);
  // A pinned session leaves by Remove alone.
  Status Pin(const std::string& id, Protection protection);
  // Reads it whole.
  Status Verify(const std::string& id);
  // Reads every file whole, removes what can never be used and is not pinned,
  // and sets the catalogue right.
  Result<CollectReport> Collect();

  // What all files of the folder take on the disk.
  Result<uint64_t> UsedBytes();
  const StoreCounters& counters() const { return counters_; }
  // What was found when the store was opened.
  const CollectReport& opened() const { return opened_; }

 private:
  // Looks at what the catalogue does not know; removes it, too, if it is
  // damaged; reads all files whole.
  enum class Depth { kOpening, kHeaders, kWhole };

  SessionStore(Folder& folder, const Clock& clock, const StoreOptions& options)
      : folder_(folder), clock_(clock), options_(options) {}

  // A session that may leave.
  struct Victim {
    std::string id;
    uint64_t used_bytes = 0;
  };

  // Calls op(catalogue); on a failure once more, with one made anew.
  template <typename Op>
  auto InCatalogue(const Op& op, const FolderLock& held) {
    if (catalogue_->IsReplaced()) OpenCatalogueLocked(held);
    auto result = op(*catalogue_);
    if (result.ok()) return result;
    RebuildCatalogueLocked(held);
    return op(*catalogue_);
  }
  // Never fails: should there be none on the disk, there is one in memory.
  void OpenCatalogueLocked(const FolderLock& held);
  void RebuildCatalogueLocked(const FolderLock& held);
  // Puts all sessions of the folder into an empty catalogue.
  Status FillCatalogueLocked(const FolderLock& held);
  Status PutFileLocked(const FolderEntry& entry, const std::string& id,
                       const SessionReader& reader, const FolderLock& held);

  Result<SessionHeader> ReadHeader(const std::string& id) const;
  Result<std::unique_ptr<SessionReader>> OpenFile(
      const std::string& id, const SessionAccess& access) const;
  // With our key, or locked.
  Result<std::unique_ptr<SessionReader>> OpenAnyhow(
      const std::string& id) const;

  Status MakeRoomLocked(uint64_t needed_bytes, const std::string& replaced_id,
                        const FolderLock& held);
  // The one used longest ago first; the one that is replaced last.
  Result<std::vector<Victim>> FindVictimsLocked(const std::string& replaced_id,
                                                const FolderLock& held);
  Status RemoveLocked(const std::string& id, const FolderLock& held);
  Status PublishLocked(SessionSave& save, const FolderLock& held);

  void CompareLocked(const PrefixQuery& query,
                     std::vector<PrefixCandidate> candidates,
                     PrefixMatch* match, const FolderLock& held);
  // Takes what the candidate has, if that is more than the match has.
  void TryCandidateLocked(const PrefixQuery& query, const std::string& id,
                          PrefixMatch* match, const FolderLock& held);

  Result<CollectReport> CollectLocked(Depth depth, const FolderLock& held);
  void CollectDraftLocked(const FolderEntry& entry, CollectReport* report,
                          const FolderLock& held);
  void CollectSessionLocked(const FolderEntry& entry, const std::string& id,
                            Depth depth, CollectReport* report,
                            const FolderLock& held);
  // Whether the catalogue has this very file.
  bool IsKnownLocked(const FolderEntry& entry, const std::string& id,
                     const FolderLock& held);
  Status ForgetMissingLocked(const std::vector<FolderEntry>& entries,
                             const FolderLock& held);
  Status ExpireLocked(CollectReport* report, const FolderLock& held);

  Folder& folder_;
  const Clock& clock_;
  const StoreOptions options_;
  std::optional<SessionCatalogue> catalogue_;
  StoreCounters counters_;
  CollectReport opened_;
};

}  // namespace lkv
