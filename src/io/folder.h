// A folder of files that are this user's alone, behind a seam that tests can
// make fail: OpenLocalFolder here, one in memory that fails on demand and
// forgets what was not synced in testing/memory_folder.h.
//
// A name is one component of a path. Only regular files are opened, symbolic
// links never followed. What is written is on the disk once the file is synced;
// under which name, once the folder is.
//
// Every open file is *in use*, across processes, until it is closed or its
// process is gone. IsInUse, and what acts upon it, belongs under Lock().
//
// Thread rule: the folder is thread-compatible and outlives its files; files
// are thread-compatible, but ReadAt may run at the same time as ReadAt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_system.h"
#include "lookaheadkv/status.h"

namespace lkv {

// The file that Lock() locks; it stands in the folder with the others.
inline constexpr std::string_view kFolderLockName = "lock";

struct FolderEntry {
  std::string name;
  uint64_t n_bytes = 0;
  uint64_t used_bytes = 0;  // on the disk, as du counts them
  bool is_protected = false;
};

// How files are read: kDirect past the page cache, into the caller's memory
// (but for what the cache has).
enum class ReadPath { kUnknown, kDirect, kBuffered };

enum class Protection { kNone, kProtected };

// A file that grows at its end. Destroyed, it is closed and stays.
class GrowingFile {
 public:
  virtual ~GrowingFile() = default;

  // Bytes appended so far.
  virtual uint64_t n_bytes() const = 0;
  // Takes disk space for n_bytes in all, so that Append cannot run out of it.
  virtual Status Reserve(uint64_t n_bytes) = 0;
  // May wait in memory until the next Sync or Trim. Nothing may follow a
  // failure.
  virtual Status Append(std::span<const uint8_t> bytes) = 0;
  // Gives back the space that was reserved beyond the end.
  virtual Status Trim() = 0;
  // Waits for the disk. After a failure what was written may be lost although
  // it can still be read, so the file is to be given up.
  virtual Status Sync() = 0;
};

// Held until destroyed, or until the process is gone.
class FolderLock {
 public:
  virtual ~FolderLock() = default;
};

// kNotFound: no such file, or no permission. kCorrupt: not a regular file.
// kInvalidArgument: not one component of a path. kIo: the system refuses.
class Folder {
 public:
  virtual ~Folder() = default;

  // Absolute, without symbolic links; empty when it is not on a disk.
  virtual const std::string& path() const = 0;
  // Of the files opened so far; kUnknown before the first one that is not
  // empty, which is tried.
  virtual ReadPath read_path() const = 0;

  // All regular files, by name. O(files) system calls.
  virtual Result<std::vector<FolderEntry>> List() const = 0;
  // Reads that are whole blocks (io_buffer.h) in offset, address and length go
  // past the page cache where the file system can, unless it has them already.
  virtual Result<std::unique_ptr<ReadableFile>> Open(
      const std::string& name) const = 0;
  // Mode 0600; kIo when the name is taken.
  virtual Result<std::unique_ptr<GrowingFile>> Create(
      const std::string& name) = 0;
  virtual Result<bool> IsInUse(const std::string& name) const = 0;
  // Replaces what has the name `to`, at one moment.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Who has it open still reads it; its space comes back after that.
  virtual Status Remove(const std::string& name) = 0;
  // A mark on the file that lasts as long as it does (mode 0400).
  virtual Status Protect(const std::string& name, Protection protection) = 0;
  // Waits until the disk has the names.
  virtual Status Sync() = 0;
  virtual Result<uint64_t> FreeBytes() const = 0;
  // Waits up to 10 s while another process or thread holds it.
  virtual Result<std::unique_ptr<FolderLock>> Lock() = 0;
};

// The folder at `path`, made with mode 0700 if it is missing (its parent must
// be there). kInvalidArgument when it is no folder, reached by a symbolic link
// in its last component, somebody else's, or open to others.
Result<std::unique_ptr<Folder>> OpenLocalFolder(const std::string& path);

// Whether `name` is one component of a path.
bool IsFileName(std::string_view name);

}  // namespace lkv
