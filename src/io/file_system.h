// Files, behind a seam that tests can make fail: LocalFileSystem here, one in
// memory that refuses on demand in testing/memory_file_system.h.
//
// A new file appears under its name, whole and on the disk, at Commit, or not
// at all: whatever happens before, a file that stood there stays as it was.
//
// Thread rule: files are thread-compatible, but ReadAt may run at the same time
// as ReadAt; the file system is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lookaheadkv/status.h"

namespace lkv {

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  virtual uint64_t n_bytes() const = 0;
  // Fills `out` with the bytes from `offset` on. kCorrupt when the file ends
  // before that, kIo when the system refuses.
  virtual Status ReadAt(uint64_t offset, std::span<uint8_t> out) const = 0;
};

// A file under way. Destroyed without Commit, it leaves nothing behind.
class NewFile {
 public:
  virtual ~NewFile() = default;

  // Bytes appended so far.
  virtual uint64_t n_bytes() const = 0;
  // kIo, for example when the disk is full; nothing may follow a failure.
  virtual Status Append(std::span<const uint8_t> bytes) = 0;
  // Waits for the disk, then replaces what had the name. Once, at the end.
  virtual Status Commit() = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // kNotFound: no such file, or no permission; kCorrupt: not a regular file
  // (never blocks on a FIFO).
  virtual Result<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) const = 0;
  // kNotFound: the folder is missing or may not be written to; kCorrupt: the
  // name belongs to something that is not a regular file.
  virtual Result<std::unique_ptr<NewFile>> Create(
      const std::string& path) const = 0;
};

// The file system of this machine.
const FileSystem& LocalFileSystem();

}  // namespace lkv
