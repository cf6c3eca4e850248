#include "io/local_file_io.h"

#include <unistd.h>

#include <cerrno>

#include "base/errno_text.h"

namespace lkv {

Status FileRefused(const std::string& path, const std::string& what,
                   int error) {
  return IoError(path + ": cannot be " + what + " (" + ErrnoText(error) +
                 "); check the disk and its free space");
}

Status ReadWhole(const Descriptor& file, const std::string& path,
                 uint64_t offset, std::span<uint8_t> out) {
  while (!out.empty()) {
    const ssize_t n =
        pread(file.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return IoError(path + ": cannot be read (" + ErrnoText(errno) +
                     "); check the disk");
    }
    if (n == 0) {
      return Corrupt(path + ": ends at byte " + std::to_string(offset) +
                     " although more belongs to it; it was cut off");
    }
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status WriteWhole(const Descriptor& file, const std::string& path,
                  uint64_t* offset, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(file.get(), bytes.data(), bytes.size(),
                             static_cast<off_t>(*offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileRefused(path, "written", errno);
    *offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace lkv
