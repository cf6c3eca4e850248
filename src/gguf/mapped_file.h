// MappedFile: a regular file, read-only in memory.
//
// Opening costs no I/O; pages are read when touched. A file that another
// process truncates while it is mapped ends this process with SIGBUS, as with
// every mmap; model files are written once. Thread rule: thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lookaheadkv/status.h"

namespace lkv {

class MappedFile {
 public:
  // kNotFound: no such file, or no permission; kCorrupt: empty, or not a
  // regular file (never blocks on a FIFO); kOutOfMemory: no address space.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return bytes_; }

  // Gives the memory of `part`, a part of bytes(), back to the system. It
  // stays readable, at the cost of reading the file again.
  void DropPages(std::span<const uint8_t> part) const;

 private:
  explicit MappedFile(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  std::span<const uint8_t> bytes_;
};

}  // namespace lkv
