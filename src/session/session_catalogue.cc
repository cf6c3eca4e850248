#include "session/session_catalogue.h"

#include <algorithm>
#include <utility>

namespace lkv {
namespace {

// Another number: an unknown layout, which is thrown away.
constexpr int64_t kLayout = 1;

// use_number orders the uses whatever the clock does.
constexpr char kSchema[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE sessions(id BLOB PRIMARY KEY, file_id BLOB, name BLOB,"
    " owner BLOB, fingerprint BLOB, n_tokens INT, complete_tokens INT,"
    " generation INT, n_bytes INT, created INT, last_use INT,"
    " use_number INT, n_hits INT, is_pinned INT) WITHOUT ROWID;"
    "CREATE INDEX by_use ON sessions(use_number);"
    "CREATE INDEX by_owner ON sessions(owner);"
    "CREATE TABLE links(session BLOB, link BLOB, position INT,"
    " PRIMARY KEY(session, link)) WITHOUT ROWID;"
    "CREATE INDEX first_links ON links(link) WHERE position = 0;"
    "PRAGMA user_version = 1;"
    "COMMIT;";

constexpr char kColumns[] =
    "id, file_id, name, owner, fingerprint, n_tokens, complete_tokens, "
    "generation, n_bytes, created, last_use, n_hits, is_pinned";
constexpr char kNextUse[] =
    "(SELECT ifnull(max(use_number), 0) + 1 FROM sessions)";

template <size_t kBytes>
std::array<uint8_t, kBytes> ArrayOf(std::span<const uint8_t> blob) {
  std::array<uint8_t, kBytes> array = {};
  std::copy_n(blob.begin(), std::min(blob.size(), kBytes), array.begin());
  return array;
}

SessionRecord RecordOf(const SqlStatement& row) {
  SessionRecord record;
  record.id = row.Text(0);
  record.file_id = ArrayOf<sizeof(FileId)>(row.Blob(1));
  record.name = row.Text(2);
  record.owner_tag = ArrayOf<sizeof(Digest)>(row.Blob(3));
  record.fingerprint_hash = ArrayOf<sizeof(Digest)>(row.Blob(4));
  record.n_tokens = static_cast<uint32_t>(row.Int(5));
  record.complete_tokens = static_cast<uint32_t>(row.Int(6));
  record.generation = static_cast<uint64_t>(row.Int(7));
  record.n_bytes = static_cast<uint64_t>(row.Int(8));
  record.created_unix_s = row.Int(9);
  record.last_use_unix_s = row.Int(10);
  record.n_hits = static_cast<uint64_t>(row.Int(11));
  record.is_pinned = row.Int(12) != 0;
  return record;
}

Result<int64_t> ReadInt(SqlDatabase& database, const char* sql) {
  Result<SqlStatement> statement = database.Prepare(sql);
  if (!statement.ok()) return statement.status();
  const Result<bool> row = statement->Fetch();
  if (!row.ok()) return row.status();
  return *row ? statement->Int(0) : int64_t{0};
}

// Makes the tables in an empty database; looks at those of another.
Status Examine(SqlDatabase& database) {
  const Result<int64_t> layout = ReadInt(database, "PRAGMA user_version");
  if (!layout.ok()) return layout.status();
  const Result<int64_t> n_tables =
      ReadInt(database, "SELECT count(*) FROM sqlite_schema");
  if (!n_tables.ok()) return n_tables.status();
  if (*n_tables == 0) return database.Execute(kSchema);
  if (*layout != kLayout) {
    return Corrupt(
        "catalogue of sessions: has another layout; it is made anew "
        "from the files");
  }
  Result<SqlStatement> check = database.Prepare("PRAGMA quick_check(1)");
  if (!check.ok()) return check.status();
  const Result<bool> row = check->Fetch();
  if (!row.ok()) return row.status();
  if (!*row || check->Text(0) != "ok") {
    return Corrupt(
        "catalogue of sessions: is damaged; it is made anew from "
        "the files");
  }
  return {};
}

}  // namespace

Result<SessionCatalogue> SessionCatalogue::Open(const std::string& path) {
  SessionCatalogue catalogue;
  Result<SqlDatabase> database = SqlDatabase::Open(path);
  if (!database.ok()) return database.status();
  catalogue.database_ = *std::move(database);
  if (Status s = Examine(catalogue.database_); !s.ok()) return s;
  if (Status s = catalogue.Prepare(); !s.ok()) return s;
  return catalogue;
}

Status SessionCatalogue::Prepare() {
  const std::string columns = kColumns, next_use = kNextUse;
  const std::pair<SqlStatement*, std::string> statements[] = {
      {&put_,
       "INSERT INTO sessions(" + columns + ", use_number) VALUES(" +
           "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, " +
           next_use + ") ON CONFLICT(id) DO UPDATE SET file_id = ?2, " +
           "name = ?3, owner = ?4, fingerprint = ?5, n_tokens = ?6, " +
           "complete_tokens = ?7, generation = ?8, n_bytes = ?9, " +
           "created = ?10, last_use = ?11, is_pinned = ?13, use_number = " +
           next_use},
      {&put_link_, "INSERT OR IGNORE INTO links VALUES(?, ?, ?)"},
      {&remove_, "DELETE FROM sessions WHERE id = ?"},
      {&remove_links_, "DELETE FROM links WHERE session = ?"},
      {&count_hit_,
       "UPDATE sessions SET n_hits = n_hits + 1, last_use = ?, use_number = " +
           next_use + " WHERE id = ?"},
      {&set_pinned_, "UPDATE sessions SET is_pinned = ? WHERE id = ?"},
      {&find_, "SELECT " + columns + " FROM sessions WHERE id = ?"},
      {&list_, "SELECT " + columns + " FROM sessions ORDER BY use_number"},
      {&has_owner_, "SELECT 1 FROM sessions WHERE owner = ? LIMIT 1"},
      {&with_link_, "SELECT " + columns +
                        " FROM sessions WHERE id IN (SELECT session " +
                        "FROM links WHERE link = ? AND position = 0) " +
                        "ORDER BY use_number DESC LIMIT ?"},
      {&has_link_, "SELECT 1 FROM links WHERE session = ? AND link = ?"},
  };
  for (const auto& [statement, sql] : statements) {
    Result<SqlStatement> prepared = database_.Prepare(sql.c_str());
    if (!prepared.ok()) return prepared.status();
    *statement = *std::move(prepared);
  }
  return {};
}

Status SessionCatalogue::PutRow(const SessionRecord& record) {
  return put_.Begin()
      .Bind(record.id)
      .Bind(record.file_id)
      .Bind(record.name)
      .Bind(record.owner_tag)
      .Bind(record.fingerprint_hash)
      .Bind(int64_t{record.n_tokens})
      .Bind(int64_t{record.complete_tokens})
      .Bind(static_cast<int64_t>(record.generation))
      .Bind(static_cast<int64_t>(record.n_bytes))
      .Bind(record.created_unix_s)
      .Bind(record.last_use_unix_s)
      .Bind(static_cast<int64_t>(record.n_hits))
      .Bind(int64_t{record.is_pinned})
      .Run();
}

Status SessionCatalogue::Put(const SessionRecord& record,
                             std::span<const Digest> chain) {
  if (Status s = database_.Execute("BEGIN IMMEDIATE"); !s.ok()) return s;
  Status s = PutRow(record);
  if (s.ok()) s = remove_links_.Begin().Bind(record.id).Run();
  for (size_t i = 0; s.ok() && i < chain.size(); ++i) {
    s = put_link_.Begin()
            .Bind(record.id)
            .Bind(chain[i])
            .Bind(static_cast<int64_t>(i))
            .Run();
  }
  put_link_.Begin();  // an unfinished statement would hold up the end
  if (s.ok()) s = database_.Execute("COMMIT");
  if (!s.ok()) static_cast<void>(database_.Execute("ROLLBACK"));
  return s;
}

Status SessionCatalogue::Remove(std::string_view id) {
  // Links without a session would find nothing, so two steps are enough.
  if (Status s = remove_.Begin().Bind(id).Run(); !s.ok()) return s;
  return remove_links_.Begin().Bind(id).Run();
}

Status SessionCatalogue::CountHit(std::string_view id, int64_t now_unix_s) {
  return count_hit_.Begin().Bind(now_unix_s).Bind(id).Run();
}

Status SessionCatalogue::SetPinned(std::string_view id, bool is_pinned) {
  return set_pinned_.Begin().Bind(int64_t{is_pinned}).Bind(id).Run();
}

Result<std::optional<SessionRecord>> SessionCatalogue::Find(
    std::string_view id) {
  const Result<bool> row = find_.Begin().Bind(id).Fetch();
  if (!row.ok()) return row.status();
  if (!*row) return std::optional<SessionRecord>();
  std::optional<SessionRecord> record = RecordOf(find_);
  find_.Begin();
  return record;
}

Result<std::vector<SessionRecord>> SessionCatalogue::List() {
  std::vector<SessionRecord> records;
  list_.Begin();
  while (true) {
    const Result<bool> row = list_.Fetch();
    if (!row.ok()) return row.status();
    if (!*row) return records;
    records.push_back(RecordOf(list_));
  }
}

Result<bool> SessionCatalogue::HasOwner(const Digest& owner_tag) {
  Result<bool> row = has_owner_.Begin().Bind(owner_tag).Fetch();
  has_owner_.Begin();
  return row;
}

Result<uint32_t> SessionCatalogue::CountLinks(std::string_view id,
                                              std::span<const Digest> chain) {
  // Each link is over those before it: a session that has one has them all.
  size_t known = 1, unknown = chain.size() + 1;
  while (unknown - known > 1) {
    const size_t middle = (known + unknown) / 2;
    const Result<bool> row =
        has_link_.Begin().Bind(id).Bind(chain[middle - 1]).Fetch();
    has_link_.Begin();
    if (!row.ok()) return row.status();
    (*row ? known : unknown) = middle;
  }
  return static_cast<uint32_t>(known);
}

Result<std::vector<PrefixCandidate>> SessionCatalogue::FindPrefixes(
    std::span<const Digest> chain) {
  std::vector<PrefixCandidate> candidates;
  if (chain.empty()) return candidates;
  with_link_.Begin().Bind(chain[0]).Bind(int64_t{kMaxCandidates});
  while (true) {
    const Result<bool> row = with_link_.Fetch();
    if (!row.ok()) return row.status();
    if (!*row) return candidates;
    PrefixCandidate candidate = {RecordOf(with_link_), 0};
    const Result<uint32_t> n_links = CountLinks(candidate.record.id, chain);
    if (!n_links.ok()) return n_links.status();
    candidate.n_links = *n_links;
    candidates.push_back(std::move(candidate));
  }
}

}  // namespace lkv
