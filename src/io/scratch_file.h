// A file for what need not survive this process, in a folder of our own.
//
// Its name says nothing, and it is gone with the object. What a process that
// was killed has left is removed when the next one makes its file: it is in use
// by nobody. (The kernel may hold a file for some milliseconds after the death
// of a process that had it in a ring; then the one after the next removes it.)
#pragma once

#include <memory>
#include <string>

#include "io/descriptor.h"
#include "io/folder.h"
#include "lookaheadkv/status.h"

namespace lkv {

// Thread-compatible; the calls that are const are thread-safe.
class ScratchFile {
 public:
  // Removes what others left, then makes an empty file (mode 0600, in use until
  // destroyed). Waits for the folder's lock.
  static Result<std::unique_ptr<ScratchFile>> Create(Folder& folder);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  int descriptor() const { return file_.get(); }
  const std::string& path() const { return path_; }

  enum class Cache { kUse, kPass };
  // Whether reads and writes pass the page cache (O_DIRECT) from now on.
  // Returns errno; 0 where the file system agrees, which is no promise that it
  // also does it.
  int Set(Cache cache);

  // On its disk, for this user.
  Result<uint64_t> FreeBytes() const;

 private:
  ScratchFile(std::string path, Descriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  const std::string path_;
  const Descriptor file_;
};

// Whether a file of the folder is, by its name, a scratch file.
bool IsScratchName(std::string_view name);

}  // namespace lkv
