// SQLite, as far as the catalogue needs it: statements that are prepared once,
// and a Status for whatever goes wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lookaheadkv/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace lkv {

// One statement with its parameters. Thread-compatible.
class SqlStatement {
 public:
  SqlStatement() = default;

  // Forgets the last rows and parameters; the next Bind is of parameter 1.
  SqlStatement& Begin();
  SqlStatement& Bind(int64_t value);
  // Requires the bytes to live until the last row was fetched.
  SqlStatement& Bind(std::span<const uint8_t> blob);
  SqlStatement& Bind(std::string_view text);
  // Whether there is another row.
  Result<bool> Fetch();
  // For a statement without rows.
  Status Run();

  // Of the row fetched last; columns from 0.
  int64_t Int(int column) const;
  // Valid until the next Fetch or Begin.
  std::span<const uint8_t> Blob(int column) const;
  std::string Text(int column) const;

 private:
  friend class SqlDatabase;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int n_bound_ = 0;
  int bind_error_ = 0;
};

// A database of this process and others. Survives the end of processes, not
// that of the machine: it never waits for the disk. Thread-compatible.
class SqlDatabase {
 public:
  // Makes it if it is missing; follows no symbolic link. An empty path: one in
  // memory.
  static Result<SqlDatabase> Open(const std::string& path);

  // One or more statements without rows.
  Status Execute(const char* sql);
  Result<SqlStatement> Prepare(const char* sql);
  // Whether another file has its path by now.
  bool IsReplaced() const;

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace lkv
