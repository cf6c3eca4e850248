#include "session/session_store.h"

#include <algorithm>
#include <utility>

#include "base/byte_text.h"
#include "io/byte_fields.h"
#include "session/room_plan.h"
#include "session/store_files.h"

namespace lkv {
namespace {

// What a session adds to the catalogue, with the pages that its journal keeps
// meanwhile: about 100 bytes a link in either.
constexpr uint64_t kCatalogueBytes = uint64_t{64} << 10;
constexpr uint64_t kCatalogueBytesPerLink = 256;

// Files opened to find the longest beginning.
constexpr size_t kMaxOpened = 16;

// Of the tokens in common, those that are of use: a cache that lacks some
// continues where it ended and nowhere before.
uint32_t UsableTokens(uint32_t n_tokens, uint32_t complete_tokens,
                      uint32_t n_common) {
  if (n_common >= n_tokens) return n_tokens;
  return std::min(n_common, complete_tokens);
}
// The same before the tokens are compared, at most.
uint32_t UsableTokensMax(const PrefixCandidate& candidate) {
  return UsableTokens(candidate.record.n_tokens,
                      candidate.record.complete_tokens,
                      (candidate.n_links + 1) * kLinkTokens - 1);
}

}  // namespace

std::string_view Text(PrefixMiss miss) {
  switch (miss) {
    case PrefixMiss::kNone:
      return "none";
    case PrefixMiss::kNoSession:
      return "no_session";
    case PrefixMiss::kNoCommonPrefix:
      return "no_common_prefix";
    case PrefixMiss::kOtherFingerprint:
      return "other_fingerprint";
    case PrefixMiss::kEvictedPrefix:
      return "evicted_prefix";
    case PrefixMiss::kDamaged:
      return "damaged";
    case PrefixMiss::kUnavailable:
      return "unavailable";
  }
  return "";
}

std::string SessionId(const Digest& owner_tag, std::string_view name) {
  std::vector<uint8_t> bytes;
  AppendBytes(bytes, owner_tag);
  AppendField(bytes, name);
  Sha256 hash;
  hash.Add(bytes);
  return hash.Hex().substr(0, kSessionIdDigits);
}

Result<std::unique_ptr<SessionStore>> SessionStore::Open(
    Folder& folder, const Clock& clock, const StoreOptions& options) {
  std::unique_ptr<SessionStore> store(new SessionStore(folder, clock, options));
  const auto lock = folder.Lock();
  if (!lock.ok()) return lock.status();
  store->OpenCatalogueLocked(**lock);
  auto report = store->CollectLocked(Depth::kOpening, **lock);
  if (!report.ok()) return report.status();
  store->opened_ = *std::move(report);
  return store;
}

Result<SessionHeader> SessionStore::ReadHeader(const std::string& id) const {
  const auto file = folder_.Open(SessionFileName(id));
  if (!file.ok()) return file.status();
  std::vector<uint8_t> bytes(kHeaderBytes);
  if (Status s = (*file)->ReadAt(0, bytes); !s.ok()) return s;
  return DecodeHeader(bytes, id);
}

Result<std::unique_ptr<SessionReader>> SessionStore::OpenFile(
    const std::string& id, const SessionAccess& access) const {
  if (!IsSessionId(id)) return NotFound("session " + id + ": is not there");
  auto file = folder_.Open(SessionFileName(id));
  if (!file.ok()) return file.status();
  return SessionReader::Open(*std::move(file), id, access);
}

Result<std::unique_ptr<SessionReader>> SessionStore::OpenAnyhow(
    const std::string& id) const {
  if (options_.master_key) {
    auto reader = OpenFile(id, {.master_key = &*options_.master_key});
    if (reader.ok() || reader.status().code() != StatusCode::kInvalidArgument) {
      return reader;
    }
  }
  return OpenFile(id, {});
}

Status SessionStore::MakeRoomLocked(uint64_t needed_bytes,
                                    const std::string& replaced_id,
                                    const FolderLock& held) {
  RoomRequest request = {.needed_bytes = needed_bytes,
                         .quota_bytes = options_.quota_bytes,
                         .min_free_bytes = options_.min_free_bytes};
  if (needed_bytes > options_.quota_bytes) {
    ++counters_.too_large;
    return OutOfMemory("sessions: one of " + FormatBytes(needed_bytes) +
                       " is larger than " + FormatBytes(options_.quota_bytes) +
                       ", all that sessions may take; raise sessions.bytes");
  }
  const auto measure = [&]() -> Status {
    const Result<uint64_t> used_bytes = UsedBytes();
    if (!used_bytes.ok()) return used_bytes.status();
    const Result<uint64_t> free_bytes = folder_.FreeBytes();
    if (!free_bytes.ok()) return free_bytes.status();
    request.used_bytes = *used_bytes;
    request.free_bytes = *free_bytes;
    return {};
  };
  if (Status s = measure(); !s.ok()) return s;
  if (HasRoom(request)) return {};
  // What dead writers left goes before what somebody may want.
  const auto report = CollectLocked(Depth::kHeaders, held);
  if (!report.ok()) return report.status();
  if (Status s = measure(); !s.ok()) return s;
  const auto victims = FindVictimsLocked(replaced_id, held);
  if (!victims.ok()) return victims.status();
  std::vector<uint64_t> victim_bytes;
  for (const Victim& victim : *victims) {
    victim_bytes.push_back(victim.used_bytes);
  }
  const Result<size_t> n_victims = CountVictims(request, victim_bytes);
  if (!n_victims.ok()) {
    ++counters_.no_room;
    return n_victims.status();
  }
  for (size_t i = 0; i < *n_victims; ++i) {
    if (Status s = RemoveLocked((*victims)[i].id, held); !s.ok()) return s;
    ++counters_.made_room;
  }
  return {};
}

Result<std::vector<SessionStore::Victim>> SessionStore::FindVictimsLocked(
    const std::string& replaced_id, const FolderLock& held) {
  const auto entries = folder_.List();
  if (!entries.ok()) return entries.status();
  auto records = InCatalogue([](auto& c) { return c.List(); }, held);
  if (!records.ok()) return records.status();
  std::stable_partition(
      records->begin(), records->end(),
      [&](const SessionRecord& record) { return record.id != replaced_id; });
  std::vector<Victim> victims;
  for (const SessionRecord& record : *records) {
    const FolderEntry* entry = FindEntry(*entries, SessionFileName(record.id));
    if (entry == nullptr || entry->is_protected) continue;
    const Result<bool> is_in_use = folder_.IsInUse(entry->name);
    if (!is_in_use.ok() || *is_in_use) continue;
    victims.push_back({record.id, entry->used_bytes});
  }
  return victims;
}

Result<SessionSave> SessionStore::BeginSave(const SessionSpec& spec,
                                            const PayloadBound& bound) {
  const auto lock = folder_.Lock();
  if (!lock.ok()) return lock.status();
  SessionSave save;
  save.chain_ = TokenChain(spec.owner.chain_seed, spec.tokens);
  save.record_ = {.id = SessionId(spec.owner.tag, spec.name),
                  // What is sealed is not to be read here.
                  .name = options_.master_key ? std::string() : spec.name,
                  .owner_tag = spec.owner.tag,
                  .fingerprint_hash = spec.fingerprint.Hash(),
                  .n_tokens = static_cast<uint32_t>(spec.tokens.size()),
                  .complete_tokens = spec.complete_tokens};
  const std::string& id = save.record_.id;
  const uint64_t needed_bytes = SessionBytesMax(spec, bound) + kCatalogueBytes +
                                save.chain_.size() * kCatalogueBytesPerLink;
  if (Status s = MakeRoomLocked(needed_bytes, id, **lock); !s.ok()) return s;

  const auto old = InCatalogue([&](auto& c) { return c.Find(id); }, **lock);
  WriteOptions options;
  options.durability = options_.durability;
  FillRandom(options.file_id);
  options.created_unix_s = clock_.UnixSeconds();
  if (old.ok() && *old) options.generation = (*old)->generation + 1;
  if (options_.master_key) options.master_key = &*options_.master_key;
  auto writer = SessionWriter::Begin(folder_, spec, bound, options);
  if (!writer.ok()) {
    ++counters_.failed_saves;
    return writer.status();
  }
  save.record_.file_id = options.file_id;
  save.record_.generation = options.generation;
  save.record_.created_unix_s = options.created_unix_s;
  save.writer_ = *std::move(writer);
  return save;
}

Result<std::string> SessionStore::FinishSave(SessionSave save) {
  Status status = save.writer_->Finish();
  if (status.ok()) {
    const auto lock = folder_.Lock();
    status = lock.ok() ? PublishLocked(save, **lock) : lock.status();
  }
  counters_.failed_syncs += save.writer_->has_failed_sync();
  ++(status.ok() ? counters_.saved : counters_.failed_saves);
  if (!status.ok()) return status;
  return save.record_.id;
}

Status SessionStore::PublishLocked(SessionSave& save, const FolderLock& held) {
  SessionRecord& record = save.record_;
  const auto old =
      InCatalogue([&](auto& c) { return c.Find(record.id); }, held);
  record.is_pinned = old.ok() && *old && (*old)->is_pinned;
  if (record.is_pinned) {
    Status s =
        folder_.Protect(save.writer_->draft_name(), Protection::kProtected);
    if (!s.ok()) return s;
  }
  Status published = save.writer_->Publish(SessionFileName(record.id));
  if (!save.writer_->is_published()) return published;
  record.n_bytes = save.writer_->n_bytes();
  record.last_use_unix_s = clock_.UnixSeconds();
  // Without it the session is found when a store is opened the next time.
  static_cast<void>(
      InCatalogue([&](auto& c) { return c.Put(record, save.chain_); }, held));
  return published;
}

PrefixMatch SessionStore::FindPrefix(const PrefixQuery& query) {
  PrefixMatch match;
  const auto lock = folder_.Lock();
  if (!lock.ok()) {
    match.miss = PrefixMiss::kUnavailable;
    match.detail = lock.status().message();
    return match;
  }
  const std::vector<Digest> chain =
      TokenChain(query.owner.chain_seed, query.tokens);
  auto candidates =
      InCatalogue([&](auto& c) { return c.FindPrefixes(chain); }, **lock);
  const auto has_owner =
      InCatalogue([&](auto& c) { return c.HasOwner(query.owner.tag); }, **lock);
  if (!candidates.ok() || !has_owner.ok()) {
    match.miss = PrefixMiss::kUnavailable;
    match.detail = candidates.status().message();
    return match;
  }
  if (candidates->empty()) {
    match.miss =
        *has_owner ? PrefixMiss::kNoCommonPrefix : PrefixMiss::kNoSession;
    return match;
  }
  CompareLocked(query, *std::move(candidates), &match, **lock);
  return match;
}

void SessionStore::CompareLocked(const PrefixQuery& query,
                                 std::vector<PrefixCandidate> candidates,
                                 PrefixMatch* match, const FolderLock& held) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const PrefixCandidate& a, const PrefixCandidate& b) {
                     return UsableTokensMax(a) > UsableTokensMax(b);
                   });
  const Digest fingerprint_hash = query.fingerprint.Hash();
  const auto others = std::stable_partition(
      candidates.begin(), candidates.end(), [&](const PrefixCandidate& c) {
        return c.record.fingerprint_hash == fingerprint_hash;
      });
  if (others == candidates.begin()) {
    match->miss = PrefixMiss::kOtherFingerprint;
    const auto other = OpenFile(others->record.id, {});
    if (!other.ok()) return;
    const auto difference =
        (*other)->fingerprint().DifferenceFrom(query.fingerprint);
    if (difference) match->detail = difference->Text();
    return;
  }
  match->miss = PrefixMiss::kEvictedPrefix;
  size_t n_opened = 0;
  for (auto it = candidates.begin(); it != others; ++it) {
    if (std::find(query.except.begin(), query.except.end(), it->record.id) !=
        query.except.end()) {
      continue;
    }
    const uint32_t n_usable = UsableTokensMax(*it);
    if (n_usable < kLinkTokens || n_usable <= match->n_tokens) break;
    if (++n_opened > kMaxOpened) break;
    TryCandidateLocked(query, it->record.id, match, held);
  }
}

void SessionStore::TryCandidateLocked(const PrefixQuery& query,
                                      const std::string& id, PrefixMatch* match,
                                      const FolderLock& held) {
  const SecretKey* key = options_.master_key ? &*options_.master_key : nullptr;
  auto reader = OpenFile(id, {&query.fingerprint, &query.owner, key});
  if (!reader.ok() || (*reader)->is_locked()) {
    const bool is_io = reader.status().code() == StatusCode::kIo;
    // The file stays for Collect to look at, but nobody finds it any more.
    if (!is_io) {
      ++counters_.damaged;
      static_cast<void>(
          InCatalogue([&](auto& c) { return c.Remove(id); }, held));
    }
    if (match->session != nullptr) return;
    match->miss = is_io ? PrefixMiss::kUnavailable : PrefixMiss::kDamaged;
    match->detail = reader.status().message();
    return;
  }
  const uint32_t n_common =
      CommonTokens((*reader)->text().tokens, query.tokens);
  const uint32_t n_usable = UsableTokens(
      (*reader)->n_tokens(), (*reader)->complete_tokens(), n_common);
  if (n_usable < kLinkTokens || n_usable <= match->n_tokens) return;
  *match = PrefixMatch();
  match->id = id;
  match->session = *std::move(reader);
  match->n_tokens = n_usable;
}

Result<std::unique_ptr<SessionReader>> SessionStore::OpenSession(
    const std::string& id, const SessionAccess& access) {
  const auto lock = folder_.Lock();
  if (!lock.ok()) return lock.status();
  return OpenFile(id, access);
}

Status SessionStore::CountHit(const std::string& id) {
  const auto lock = folder_.Lock();
  if (!lock.ok()) return lock.status();
  return InCatalogue(
      [&](auto& c) { return c.CountHit(id, clock_.UnixSeconds()); }, **lock);
}

Result<std::vector<SessionRecord>> SessionStore::List() {
  const auto lock = folder_.Lock();
  if (!lock.ok()) return lock.status();
  return InCatalogue([](auto& c) { return c.List(); }, **lock);
}

Status SessionStore::RemoveLocked(const std::string& id,
                                  const FolderLock& held) {
  if (!IsSessionId(id)) return NotFound("session " + id + ": is not there");
  Status removed = folder_.Remove(SessionFileName(id));
  if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
  static_cast<void>(InCatalogue([&](auto& c) { return c.Remove(id); }, held));
  return removed;
}

Status SessionStore::Remove(const std::string& id) {
  const auto lock = folder_.Lock();
  if (!lock.ok()) return lock.status();
  if (Status s = RemoveLocked(id, **lock); !s.ok()) return s;
  // Who deletes a text does not want it back after a crash.
  return options_.durability == Durability::kNone ? Status() : folder_.Sync();
}

Status SessionStore::Pin(const std::string& id, Protection protection) {
  const auto lock = folder_.Lock();
  if (!lock.ok()) return lock.status();
  if (!IsSessionId(id)) return NotFound("session " + id + ": is not there");
  Status s = folder_.Protect(SessionFileName(id), protection);
  if (!s.ok()) return s;
  const bool is_pinned = protection == Protection::kProtected;
  return InCatalogue([&](auto& c) { return c.SetPinned(id, is_pinned); },
                     **lock);
}

Status SessionStore::Verify(const std::string& id) {
  const auto reader = [&]() -> Result<std::unique_ptr<SessionReader>> {
    const auto lock = folder_.Lock();
    if (!lock.ok()) return lock.status();
    return OpenAnyhow(id);
  }();
  return reader.ok() ? (*reader)->Verify() : reader.status();
}

Result<uint64_t> SessionStore::UsedBytes() {
  const auto entries = folder_.List();
  if (!entries.ok()) return entries.status();
  uint64_t used_bytes = 0;
  for (const FolderEntry& entry : *entries) used_bytes += entry.used_bytes;
  return used_bytes;
}

}  // namespace lkv
