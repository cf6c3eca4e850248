#include "session/sql_database.h"

#include <sqlite3.h>

#include <utility>

namespace lkv {
namespace {

constexpr int kWaitMs = 10'000;

Status Failed(int error) {
  return Corrupt(std::string("catalogue of sessions: ") +
                 sqlite3_errstr(error) + "; it is made anew from the files");
}

}  // namespace

void SqlStatement::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

SqlStatement& SqlStatement::Begin() {
  // Reports how the last run went, which was said then.
  static_cast<void>(sqlite3_reset(statement_.get()));
  n_bound_ = 0;
  bind_error_ = SQLITE_OK;
  return *this;
}

SqlStatement& SqlStatement::Bind(int64_t value) {
  const int error = sqlite3_bind_int64(statement_.get(), ++n_bound_, value);
  if (error != SQLITE_OK) bind_error_ = error;
  return *this;
}

SqlStatement& SqlStatement::Bind(std::span<const uint8_t> blob) {
  // Without an address, SQLite would take it for NULL.
  const void* data = blob.empty() ? "" : static_cast<const void*>(blob.data());
  const int error = sqlite3_bind_blob64(statement_.get(), ++n_bound_, data,
                                        blob.size(), SQLITE_STATIC);
  if (error != SQLITE_OK) bind_error_ = error;
  return *this;
}

SqlStatement& SqlStatement::Bind(std::string_view text) {
  return Bind(
      std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

Result<bool> SqlStatement::Fetch() {
  if (bind_error_ != SQLITE_OK) return Failed(bind_error_);
  const int result = sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  return Failed(result);
}

Status SqlStatement::Run() { return Fetch().status(); }

int64_t SqlStatement::Int(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

std::span<const uint8_t> SqlStatement::Blob(int column) const {
  const auto* data = static_cast<const uint8_t*>(
      sqlite3_column_blob(statement_.get(), column));
  const int n_bytes = sqlite3_column_bytes(statement_.get(), column);
  return {data, data == nullptr ? 0 : static_cast<size_t>(n_bytes)};
}

std::string SqlStatement::Text(int column) const {
  const std::span<const uint8_t> bytes = Blob(column);
  return {bytes.begin(), bytes.end()};
}

void SqlDatabase::Close::operator()(sqlite3* database) const {
  sqlite3_close_v2(database);
}

Result<SqlDatabase> SqlDatabase::Open(const std::string& path) {
  SqlDatabase opened;
  sqlite3* database = nullptr;
  const int error =
      sqlite3_open_v2(path.empty() ? ":memory:" : path.c_str(), &database,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE |
                          SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX,
                      nullptr);
  opened.database_.reset(database);
  if (error != SQLITE_OK) return Failed(error);
  sqlite3_busy_timeout(database, kWaitMs);
  Status s = opened.Execute(
      "PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = OFF;"
      "PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;");
  if (!s.ok()) return s;
  return opened;
}

Status SqlDatabase::Execute(const char* sql) {
  const int error =
      sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr);
  return error == SQLITE_OK ? Status() : Failed(error);
}

Result<SqlStatement> SqlDatabase::Prepare(const char* sql) {
  SqlStatement prepared;
  sqlite3_stmt* statement = nullptr;
  const int error = sqlite3_prepare_v3(
      database_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  prepared.statement_.reset(statement);
  if (error != SQLITE_OK) return Failed(error);
  return prepared;
}

bool SqlDatabase::IsReplaced() const {
  int has_moved = 0;
  const int error = sqlite3_file_control(database_.get(), "main",
                                         SQLITE_FCNTL_HAS_MOVED, &has_moved);
  return error == SQLITE_OK && has_moved != 0;
}

}  // namespace lkv
