// What keeps a SessionStore in order: its catalogue, and what is left of dead
// writers, damaged or kept too long.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "session/session_store.h"
#include "session/store_files.h"

namespace lkv {
namespace {

constexpr uint64_t kSecondsPerDay = 24 * 60 * 60;

bool IsOurs(std::string_view file_name) {
  return file_name == kCatalogueName || file_name == kCatalogueJournalName ||
         file_name == kFolderLockName;
}

// A clock that went backwards makes nothing old.
uint64_t AgeSeconds(int64_t since, int64_t now) {
  if (since >= now) return 0;
  return static_cast<uint64_t>(now) - static_cast<uint64_t>(since);
}

}  // namespace

void SessionStore::OpenCatalogueLocked(const FolderLock& held) {
  std::string path;
  if (!folder_.path().empty()) {
    path = folder_.path() + "/" + std::string(kCatalogueName);
    // For SQLite makes files that others may read. Taken is fine, too.
    static_cast<void>(folder_.Create(std::string(kCatalogueName)));
  }
  auto opened = SessionCatalogue::Open(path);
  if (!opened.ok()) return RebuildCatalogueLocked(held);
  catalogue_ = *std::move(opened);
  const auto records = catalogue_->List();
  if (!records.ok()) return RebuildCatalogueLocked(held);
  if (records->empty() && !FillCatalogueLocked(held).ok()) {
    RebuildCatalogueLocked(held);
  }
}

void SessionStore::RebuildCatalogueLocked(const FolderLock& held) {
  ++counters_.rebuilt_catalogues;
  catalogue_.reset();
  for (const std::string_view name : {kCatalogueName, kCatalogueJournalName}) {
    static_cast<void>(folder_.Remove(std::string(name)));
  }
  if (!folder_.path().empty()) {
    static_cast<void>(folder_.Create(std::string(kCatalogueName)));
    auto on_disk = SessionCatalogue::Open(folder_.path() + "/" +
                                          std::string(kCatalogueName));
    if (on_disk.ok()) {
      catalogue_ = *std::move(on_disk);
      if (FillCatalogueLocked(held).ok()) return;
    }
  }
  auto in_memory = SessionCatalogue::Open("");
  CHECK(in_memory.ok());
  catalogue_ = *std::move(in_memory);
  // What cannot be read now is found by the next Collect.
  static_cast<void>(FillCatalogueLocked(held));
}

Status SessionStore::FillCatalogueLocked(const FolderLock& held) {
  const auto entries = folder_.List();
  if (!entries.ok()) return entries.status();
  struct Found {
    int64_t created_unix_s;
    const FolderEntry* entry;
  };
  std::vector<Found> found;
  for (const FolderEntry& entry : *entries) {
    const std::string id = SessionIdIn(entry.name);
    if (id.empty()) continue;
    const auto header = ReadHeader(id);
    if (header.ok()) found.push_back({header->created_unix_s, &entry});
  }
  // Their order of use is lost; that of their making is the next best.
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) {
                     return a.created_unix_s < b.created_unix_s;
                   });
  for (const Found& f : found) {
    const std::string id = SessionIdIn(f.entry->name);
    const auto reader = OpenAnyhow(id);
    if (!reader.ok()) continue;
    if (Status s = PutFileLocked(*f.entry, id, **reader, held); !s.ok()) {
      return s;
    }
  }
  return {};
}

Status SessionStore::PutFileLocked(const FolderEntry& entry,
                                   const std::string& id,
                                   const SessionReader& reader,
                                   const FolderLock&) {
  // Used now: when it was used is not known, and keep_days begins anew.
  return catalogue_->Put(
      {.id = id,
       .file_id = reader.header().file_id,
       .name = reader.header().is_sealed() ? std::string() : reader.text().name,
       .owner_tag = reader.owner_tag(),
       .fingerprint_hash = reader.fingerprint().Hash(),
       .n_tokens = reader.n_tokens(),
       .complete_tokens = reader.complete_tokens(),
       .generation = reader.header().generation,
       .n_bytes = entry.n_bytes,
       .created_unix_s = reader.header().created_unix_s,
       .last_use_unix_s = clock_.UnixSeconds(),
       .is_pinned = entry.is_protected},
      reader.text().chain);
}

Result<CollectReport> SessionStore::Collect() {
  const auto lock = folder_.Lock();
  if (!lock.ok()) return lock.status();
  return CollectLocked(Depth::kWhole, **lock);
}

Result<CollectReport> SessionStore::CollectLocked(Depth depth,
                                                  const FolderLock& held) {
  const auto entries = folder_.List();
  if (!entries.ok()) return entries.status();
  CollectReport report;
  for (const FolderEntry& entry : *entries) {
    const std::string id = SessionIdIn(entry.name);
    if (!id.empty()) {
      CollectSessionLocked(entry, id, depth, &report, held);
    } else if (IsDraftName(entry.name)) {
      CollectDraftLocked(entry, &report, held);
    } else if (!IsOurs(entry.name)) {
      report.left.push_back(entry.name + ": is no file of sessions");
    }
  }
  if (Status s = ForgetMissingLocked(*entries, held); !s.ok()) return s;
  if (Status s = ExpireLocked(&report, held); !s.ok()) return s;
  return report;
}

void SessionStore::CollectDraftLocked(const FolderEntry& entry,
                                      CollectReport* report,
                                      const FolderLock&) {
  const Result<bool> is_in_use = folder_.IsInUse(entry.name);
  if (is_in_use.ok() && *is_in_use) return;
  Status s = is_in_use.status();
  if (s.ok()) s = folder_.Remove(entry.name);
  if (!s.ok()) {
    report->left.emplace_back(s.message());
    return;
  }
  report->drafts.push_back(entry.name);
  report->freed_bytes += entry.used_bytes;
}

bool SessionStore::IsKnownLocked(const FolderEntry& entry,
                                 const std::string& id,
                                 const FolderLock& held) {
  const auto header = ReadHeader(id);
  const auto record = InCatalogue([&](auto& c) { return c.Find(id); }, held);
  if (!header.ok() || !record.ok() || !*record) return false;
  const SessionRecord& known = **record;
  return known.file_id == header->file_id && known.n_bytes == entry.n_bytes &&
         known.is_pinned == entry.is_protected;
}

void SessionStore::CollectSessionLocked(const FolderEntry& entry,
                                        const std::string& id, Depth depth,
                                        CollectReport* report,
                                        const FolderLock& held) {
  const bool is_known = IsKnownLocked(entry, id, held);
  if (is_known && depth != Depth::kWhole) return;
  const auto reader = OpenAnyhow(id);
  const Status status = reader.ok() && depth == Depth::kWhole
                            ? (*reader)->Verify()
                            : reader.status();
  if (status.ok()) {
    if (is_known) return;
    static_cast<void>(InCatalogue(
        [&](auto&) { return PutFileLocked(entry, id, **reader, held); }, held));
    return;
  }
  // Neither of what is damaged nor of what is for another program or key may
  // the catalogue promise anything.
  static_cast<void>(InCatalogue([&](auto& c) { return c.Remove(id); }, held));
  const std::string reason(status.message());
  if (status.code() != StatusCode::kCorrupt) {
    report->left.push_back(reason);
    return;
  }
  ++counters_.damaged;
  if (depth == Depth::kOpening) {
    report->damaged.push_back(reason);
    return;
  }
  if (entry.is_protected) {
    report->left.push_back(reason + " (it is pinned)");
    return;
  }
  if (Status s = folder_.Remove(entry.name); !s.ok()) {
    report->left.emplace_back(s.message());
    return;
  }
  report->damaged.push_back(reason);
  report->freed_bytes += entry.used_bytes;
}

Status SessionStore::ForgetMissingLocked(
    const std::vector<FolderEntry>& entries, const FolderLock& held) {
  const auto records = InCatalogue([](auto& c) { return c.List(); }, held);
  if (!records.ok()) return records.status();
  for (const SessionRecord& record : *records) {
    if (FindEntry(entries, SessionFileName(record.id)) != nullptr) continue;
    Status s = InCatalogue([&](auto& c) { return c.Remove(record.id); }, held);
    if (!s.ok()) return s;
  }
  return {};
}

Status SessionStore::ExpireLocked(CollectReport* report,
                                  const FolderLock& held) {
  if (options_.keep_days == 0) return {};
  const auto records = InCatalogue([](auto& c) { return c.List(); }, held);
  if (!records.ok()) return records.status();
  const int64_t now = clock_.UnixSeconds();
  for (const SessionRecord& record : *records) {
    if (record.is_pinned || AgeSeconds(record.last_use_unix_s, now) <=
                                options_.keep_days * kSecondsPerDay) {
      continue;
    }
    const Result<bool> is_in_use = folder_.IsInUse(SessionFileName(record.id));
    if (!is_in_use.ok() || *is_in_use) continue;
    if (Status s = RemoveLocked(record.id, held); !s.ok()) return s;
    report->expired.push_back(record.id);
    report->freed_bytes += record.n_bytes;
  }
  return {};
}

}  // namespace lkv
