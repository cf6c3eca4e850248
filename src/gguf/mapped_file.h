// MappedFile: a regular file, read-only in memory.
//
// Opening costs no I/O; pages are read when touched. What another process
// truncates meanwhile reads as zeros, and IsTorn() says so. Thread rule:
// thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "gguf/truncation_guard.h"
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
  // True once a part of bytes() was read that is no longer in the file: it
  // reads as zeros from there to the end.
  bool IsTorn() const { return guard_->IsTorn(); }

  // Gives the memory of `part`, a part of bytes(), back to the system. It
  // stays readable, at the cost of reading the file again.
  void DropPages(std::span<const uint8_t> part) const;

 private:
  explicit MappedFile(std::span<const uint8_t> bytes)
      : bytes_(bytes), guard_(TruncationGuard::Create(bytes)) {}

  std::span<const uint8_t> bytes_;
  std::optional<TruncationGuard> guard_;  // of bytes_
};

}  // namespace lkv
